"""The ASGI callable, with a database that is up to date."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "djangoproj.settings")

from django.core.asgi import get_asgi_application  # noqa: E402

application = get_asgi_application()

from django.core.management import call_command  # noqa: E402

call_command("migrate", verbosity=0, interactive=False)
