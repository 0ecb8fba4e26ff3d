from django.contrib.staticfiles.views import serve
from django.urls import path, re_path

from . import views

urlpatterns = [
    path("", views.hello),
    path("slow", views.slow),
    path("busy", views.busy),
    path("notes/", views.notes),
    path("notes/<int:pk>/", views.note),
    path("visits", views.visits),
    path("stream", views.stream),
    path("upload", views.upload),
    path("error", views.error),
    path("page", views.page),
    # By Django itself, so that the project shows its pages behind any server; m0serve can take these files over.
    re_path(r"^static/(?P<path>.+)$", serve, {"insecure": True}),
]
