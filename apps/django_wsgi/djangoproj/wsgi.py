"""The WSGI entry: `m0serve --app-dir apps/django_wsgi djangoproj.wsgi:application`."""

import fcntl
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "djangoproj.settings")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()


def migrate():
    """A fresh clone answers without a step by hand. The lock is for several workers that start at once."""
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    with open(f"{settings.DATABASE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            call_command("migrate", interactive=False, verbosity=0)
        # A worker may be forked from here, and SQLite's connections must not cross a fork.
        connection.close()


migrate()
