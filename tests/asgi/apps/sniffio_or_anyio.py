"""Which async library runs, as anyio or sniffio see it."""


def current():
    try:
        from sniffio import current_async_library
    except ImportError:
        from anyio import get_current_task

        get_current_task()
        return "asyncio"
    return current_async_library()
