"""A to-do list in FastHTML: pages made in Python, changed in place by HTMX.

    m0serve --app-dir apps/fasthtml app:app

HTMX comes from a public CDN, as FastHTML's pages do by default; without it the forms still work by their own.
"""

from fasthtml.common import A, Button, Fieldset, Form, Input, Li, P, Titled, Ul, fast_app
from starlette.responses import PlainTextResponse, RedirectResponse

app, rt = fast_app(live=False, canonical=False, secret_key="only for the demonstration", pico=True)

todos = {1: "try m0serve"}


def item(number, text):
    remove = A("done", href=f"/done/{number}", hx_delete=f"/todos/{number}", hx_target=f"#todo-{number}", hx_swap="outerHTML")
    return Li(text, " ", remove, id=f"todo-{number}")


def new_text():
    return Input(id="text", name="text", placeholder="What is to be done?", hx_swap_oob="true")


@rt("/hello")
def get_hello():
    return PlainTextResponse("Hello, World!")


@rt("/")
def get(session):
    session["visits"] = session.get("visits", 0) + 1
    form = Form(Fieldset(new_text(), Button("Add"), role="group"), action="/todos", method="post", hx_post="/todos", hx_target="#list", hx_swap="beforeend")
    items = [item(number, text) for number, text in todos.items()]
    return Titled("To do", form, Ul(*items, id="list"), P(f"You were here {session['visits']} times."))


@rt("/todos")
def post(text: str, htmx):
    number = max(todos, default=0) + 1
    todos[number] = text
    if not htmx.request:
        return RedirectResponse("/", 303)
    return item(number, text), new_text()


@rt("/todos/{number}")
def delete(number: int):
    todos.pop(number, None)


@rt("/done/{number}")
def get_done(number: int):
    todos.pop(number, None)
    return RedirectResponse("/", 303)


@rt("/slow")
async def get_slow(ms: int = 200):
    import asyncio

    await asyncio.sleep(ms / 1000)
    return P(f"slept {ms} ms")
