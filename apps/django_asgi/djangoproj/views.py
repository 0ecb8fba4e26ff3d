"""The views: what an asynchronous Django site asks of its server, one route each."""

import asyncio
import hashlib
import json
import threading
import time

from django.core.exceptions import ValidationError
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import aget_object_or_404
from django.utils.decorators import decorator_from_middleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.views.decorators.http import require_POST

from .models import Note

ENDED = []


async def hello(request):
    return HttpResponse(b"Hello, World!", content_type="text/plain", headers={"Content-Length": "13"})


def sync(request):
    """A plain view: Django runs it in a thread."""
    time.sleep(float(request.GET.get("ms", 0)) / 1000)
    return JsonResponse({"main_thread": threading.current_thread() is threading.main_thread()})


async def slow(request):
    """Awaits ?ms= (200)."""
    ms = float(request.GET.get("ms", 200))
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        ENDED.append("slow was cancelled")
        raise
    return HttpResponse(f"slept {ms:g} ms\n", content_type="text/plain")


async def notes(request):
    """GET lists the newest 20 notes; POST makes one of a JSON object's or a form's title and body."""
    if request.method != "POST":
        found = [note.as_dict() async for note in Note.objects.all()[:20]]
        return JsonResponse({"count": await Note.objects.acount(), "notes": found})
    if request.content_type == "application/json":
        try:
            fields = json.loads(request.body)
        except ValueError:
            return JsonResponse({"error": "not JSON"}, status=400)
    else:
        fields = request.POST
    note = Note(title=fields.get("title", ""), body=fields.get("body", ""))
    try:
        note.clean_fields()
    except ValidationError as problem:
        return JsonResponse({"error": problem.message_dict}, status=400)
    await note.asave()
    return JsonResponse(note.as_dict(), status=201, headers={"Location": f"/notes/{note.pk}/"})


async def note(request, pk):
    found = await aget_object_or_404(Note, pk=pk)
    if request.method == "DELETE":
        await found.adelete()
        return HttpResponse(status=204)
    return JsonResponse(found.as_dict())


@decorator_from_middleware(SessionMiddleware)
def visits(request):
    """Counts the visits of this session, in the database."""
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JsonResponse({"visits": request.session["visits"]})


async def stream(request):
    """?n= (3) chunks of ?size= (13) bytes, ?ms= (0) apart."""
    n, size = int(request.GET.get("n", 3)), int(request.GET.get("size", 13))
    pause = float(request.GET.get("ms", 0)) / 1000

    async def chunks():
        for i in range(n):
            if pause and i:
                await asyncio.sleep(pause)
            yield b"d" * size

    return StreamingHttpResponse(chunks(), content_type="application/octet-stream")


async def events(request):
    """Server-sent events until the client goes."""

    async def forever():
        number = 0
        try:
            while True:
                yield f"data: {number}\n\n"
                number += 1
                await asyncio.sleep(0.02)
        finally:
            ENDED.append("events ended")

    return StreamingHttpResponse(forever(), content_type="text/event-stream")


async def ended(request):
    """What has ended since this was asked for last."""
    found, ENDED[:] = list(ENDED), []
    return JsonResponse(found, safe=False)


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


async def error(request):
    raise RuntimeError("an error in the view")


async def meta(request):
    """Where Django takes the request to come from and to go."""
    return JsonResponse(
        {
            "path": request.path,
            "path_info": request.path_info,
            "script_name": request.META.get("SCRIPT_NAME"),
            "remote": request.META.get("REMOTE_ADDR"),
            "server": f"{request.META.get('SERVER_NAME')}:{request.META.get('SERVER_PORT')}",
            "uri": request.build_absolute_uri(),
            "query": request.GET.dict(),
        }
    )
