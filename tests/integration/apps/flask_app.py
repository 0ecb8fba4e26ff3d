"""A Flask application with what Flask applications have."""

import hashlib
import io
import tempfile

from flask import (
    Flask,
    Response,
    jsonify,
    make_response,
    redirect,
    request,
    send_file,
    session,
    stream_with_context,
    url_for,
)

app = Flask(__name__)
app.secret_key = "for tests alone"
torn_down = []


@app.teardown_request
def count_teardown(error):
    torn_down.append(error)


@app.get("/")
def index():
    return "hello from Flask"


@app.get("/torn-down")
def how_many():
    return str(len(torn_down))


@app.get("/greet/<name>")
def greet(name):
    return jsonify(name=name, q=request.args.getlist("q"), url=url_for("greet", name=name), root=request.script_root)


@app.post("/form")
def form():
    return jsonify(request.form.to_dict(flat=False))


@app.post("/json")
def json_():
    return jsonify(got=request.get_json())


@app.post("/upload")
def upload():
    return jsonify(
        {
            name: [file.filename, file.mimetype, hashlib.sha256(file.stream.read()).hexdigest()]
            for name, file in request.files.items()
        }
    )


@app.put("/raw")
def raw():
    return jsonify(length=request.content_length, sha256=hashlib.sha256(request.get_data()).hexdigest())


@app.get("/stream")
def stream():
    @stream_with_context
    def pieces():
        for n in range(int(request.args.get("n", 3))):
            yield f"{n} {request.path}\n"

    return Response(pieces(), mimetype="text/plain")


@app.get("/cookies")
def cookies():
    response = make_response(jsonify(request.cookies))
    response.set_cookie("first", "1")
    response.set_cookie("second", "2; 3")
    return response


@app.get("/visits")
def visits():
    session["visits"] = session.get("visits", 0) + 1
    return str(session["visits"])


_kept = tempfile.NamedTemporaryFile(suffix=".bin")
_kept.write(bytes(range(256)) * 2000)
_kept.flush()


@app.get("/file")
def file():
    return send_file(_kept.name, mimetype="application/octet-stream", conditional=True, etag="fixed")


@app.get("/file-path")
def file_path():
    return send_file(__file__, conditional=True)


@app.get("/memory-file")
def memory_file():
    return send_file(io.BytesIO(b"in memory"), download_name="sch\xf6n.txt", as_attachment=True)


@app.get("/redirect")
def redirected():
    return redirect(url_for("index"))


@app.get("/empty")
def empty():
    return "", 204


@app.get("/error")
def error():
    raise RuntimeError("a Flask view failed")
