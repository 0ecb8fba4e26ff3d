"""Settings of a small but real project: sessions, an ORM model over SQLite, static files. It runs on a fresh clone
without a step by hand: djangoproj.wsgi applies the migrations.

DJANGO_DB        the database file; default var/db.sqlite3 beside manage.py (ignored by git)
DJANGO_DEBUG     1 switches DEBUG on
DJANGO_SECRET    the secret key; by default one made at random beside the database, shared by all its processes
"""

import os
import secrets
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
DATABASE = Path(os.environ.get("DJANGO_DB") or BASE_DIR / "var" / "db.sqlite3").absolute()
DATABASE.parent.mkdir(parents=True, exist_ok=True)


def secret_key():
    """Sessions must survive a restart and be valid in every worker, so the key lies in a file; O_EXCL and a link
    decide which of several first starts makes it."""
    path = DATABASE.with_name(DATABASE.name + ".secret")
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()


SECRET_KEY = os.environ.get("DJANGO_SECRET") or secret_key()
DEBUG = os.environ.get("DJANGO_DEBUG") == "1"
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "djangoproj",
]
# None for every request: the hello route is a benchmark. A view that wants one wears it (see views.visits).
MIDDLEWARE = []
ROOT_URLCONF = "djangoproj.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
WSGI_APPLICATION = "djangoproj.wsgi.application"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATABASE,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # Writers of many threads and processes wait for each other rather than fail.
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

SESSION_ENGINE = "django.contrib.sessions.backends.db"

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
