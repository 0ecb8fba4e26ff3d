from django.urls import path

from . import views

urlpatterns = [
    path("", views.hello),
    path("sync", views.sync),
    path("slow", views.slow),
    path("notes/", views.notes),
    path("notes/<int:pk>/", views.note),
    path("visits", views.visits),
    path("stream", views.stream),
    path("events", views.events),
    path("ended", views.ended),
    path("upload", views.upload),
    path("error", views.error),
    path("meta", views.meta),
]
