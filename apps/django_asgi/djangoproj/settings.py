"""Settings of a small Django project whose views are coroutines: an ORM model over SQLite, sessions, uploads, streams. It
runs on a fresh clone without a step by hand: djangoproj.asgi applies the migrations.

DJANGO_DB        the database file; default var/db.sqlite3 beside this project (ignored by git)
DJANGO_DEBUG     1 switches DEBUG on
"""

import os
import secrets
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
DATABASE = Path(os.environ.get("DJANGO_DB") or BASE_DIR / "var" / "db.sqlite3").absolute()
DATABASE.parent.mkdir(parents=True, exist_ok=True)

# Sessions here last as long as the process: nothing is signed that has to outlive it.
SECRET_KEY = os.environ.get("DJANGO_SECRET") or secrets.token_urlsafe(50)
DEBUG = os.environ.get("DJANGO_DEBUG") == "1"
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.sessions", "djangoproj"]
# None for every request: the hello route is a benchmark. A view that wants one wears it.
MIDDLEWARE = []
ROOT_URLCONF = "djangoproj.urls"
ASGI_APPLICATION = "djangoproj.asgi.application"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATABASE,
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
