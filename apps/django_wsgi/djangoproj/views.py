"""The views: what a Django site asks of its server, one route each."""

import hashlib
import json
import time

from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import ValidationError
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.decorators import decorator_from_middleware
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from .models import Note


def hello(request):
    # With its length, as CommonMiddleware would add it: a server that adds none falls back to chunks.
    return HttpResponse(b"Hello, World!", content_type="text/plain", headers={"Content-Length": "13"})


def slow(request):
    """Waits ?ms= (200): holds a thread, not the processor."""
    ms = float(request.GET.get("ms", 200))
    time.sleep(ms / 1000)
    return HttpResponse(f"slept {ms:g} ms\n", content_type="text/plain")


def busy(request):
    """Computes for ?ms= (1) of the thread's own processor time."""
    ms = float(request.GET.get("ms", 1))
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass
    return HttpResponse(f"computed {ms:g} ms\n", content_type="text/plain")


@require_http_methods(["GET", "HEAD", "POST"])
def notes(request):
    """GET lists the newest ?limit= (20) notes; POST makes one of a form's or a JSON object's title and body."""
    if request.method != "POST":
        limit = min(int(request.GET.get("limit", 20)), 200)
        return JsonResponse({"count": Note.objects.count(), "notes": [n.as_dict() for n in Note.objects.all()[:limit]]})
    if request.content_type == "application/json":
        try:
            fields = json.loads(request.body)
        except ValueError:
            return JsonResponse({"error": "not JSON"}, status=400)
        if not isinstance(fields, dict):
            return JsonResponse({"error": "not an object"}, status=400)
    else:
        fields = request.POST
    note = Note(title=fields.get("title", ""), body=fields.get("body", ""))
    try:
        note.full_clean()
    except ValidationError as problem:
        return JsonResponse({"error": problem.message_dict}, status=400)
    note.save()
    return JsonResponse(note.as_dict(), status=201, headers={"Location": f"/notes/{note.pk}/"})


@require_http_methods(["GET", "HEAD", "DELETE"])
def note(request, pk):
    found = get_object_or_404(Note, pk=pk)
    if request.method == "DELETE":
        found.delete()
        return HttpResponse(status=204)
    return JsonResponse(found.as_dict())


@decorator_from_middleware(SessionMiddleware)
def visits(request):
    """Counts the visits of this session, in the database."""
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JsonResponse({"visits": request.session["visits"]})


def stream(request):
    """?n= (3) chunks of ?size= (13) bytes, ?ms= (0) apart, of no announced length."""
    n, size = int(request.GET.get("n", 3)), int(request.GET.get("size", 13))
    pause = float(request.GET.get("ms", 0)) / 1000

    def chunks():
        for i in range(n):
            if pause and i:
                time.sleep(pause)
            yield b"d" * size

    return StreamingHttpResponse(chunks(), content_type="application/octet-stream")


@require_POST
def upload(request):
    """What arrived of a multipart form, file by file."""
    files = {}
    for name, file in request.FILES.items():
        digest = hashlib.sha256()
        for piece in file.chunks():
            digest.update(piece)
        files[name] = {"name": file.name, "size": file.size, "sha256": digest.hexdigest()}
    return JsonResponse({"fields": request.POST.dict(), "files": files})


def error(request):
    raise RuntimeError("an error in the view")


@require_safe
def page(request):
    """A rendered template with a static file."""
    return render(request, "djangoproj/page.html", {"notes": Note.objects.all()[:10]})
