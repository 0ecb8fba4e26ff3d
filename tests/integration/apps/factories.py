"""Applications that are made by a call."""


def _application(text):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [text]

    return application


def make():
    return _application(b"made")


def make_nothing():
    return None


def make_and_fail():
    raise LookupError("the factory failed")


def needs_more(argument):
    return _application(b"never")


class Site:
    """A callable instance, as Django's handler is; and its bound method."""

    def __call__(self, environ, start_response):
        return _application(b"instance")(environ, start_response)

    def serve(self, environ, start_response):
        return _application(b"bound method")(environ, start_response)

    @staticmethod
    def static(environ, start_response):
        return _application(b"static method")(environ, start_response)

    class Inner:
        @classmethod
        def klass(cls, environ, start_response):
            return _application(b"class method")(environ, start_response)

    @staticmethod
    def make():
        return _application(b"made by a dotted name")


class PerRequest:
    """A class as the application: each call makes an iterable."""

    def __init__(self, environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])

    def __iter__(self):
        yield b"a class"


class Slots:
    """An application that allows no new attributes and no weak references."""

    __slots__ = ()

    def __call__(self, environ, start_response):
        return _application(b"slots")(environ, start_response)


site = Site()
slots = Slots()
partial = __import__("functools").partial(lambda text, e, s: _application(text)(e, s), b"partial")
number = 5
