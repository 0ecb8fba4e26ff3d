"""An application behind two dots."""

from only_app import app


class Holder:
    class Inner:
        application = staticmethod(app)
