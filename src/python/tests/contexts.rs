//! Each request starts in an empty `contextvars` context of its own.

use super::Site;

const SOURCE: &str = r#"
import contextvars
var = contextvars.ContextVar('var', default='unset')
kept = []
seen = []
class Body:
    def __iter__(self):
        seen.append(('iter', var.get()))
        yield b'x'
        seen.append(('next', var.get()))
    def close(self):
        seen.append(('close', var.get()))
def app(environ, start_response):
    path = environ['PATH_INFO']
    seen.append((path, var.get(), len(contextvars.copy_context())))
    start_response('200 OK', [])
    if path == '/set':
        var.set('set')
    elif path == '/reset':
        token = var.set('set')
        var.reset(token)
    elif path == '/keep-token':
        kept.append(var.set('kept'))
        var.reset(kept[-1]) if False else None
    elif path == '/enter':
        kept.append(contextvars.copy_context())
    elif path == '/body':
        var.set('body')
        return Body()
    elif path == '/fail':
        var.set('fail')
        1 / 0
    return [b'x']
"#;

#[test]
fn nothing_is_seen_of_an_earlier_request() {
    let mut site = Site::new(SOURCE);
    for path in [
        "/",
        "/set",
        "/reset",
        "/keep-token",
        "/enter",
        "/body",
        "/fail",
    ] {
        site.look("seen.clear()");
        site.get(path);
        assert_eq!(
            site.look("seen[0]"),
            format!("('{path}', 'unset', 0)"),
            "{path}"
        );
        site.get("/");
        assert_eq!(site.look("seen[-1]"), "('/', 'unset', 0)", "after {path}");
    }
}

#[test]
fn the_body_and_close_share_the_requests_context() {
    let mut site = Site::new(SOURCE);
    site.get("/body");
    assert_eq!(
        site.look("seen[1:]"),
        "[('iter', 'body'), ('next', 'body'), ('close', 'body')]"
    );
}

#[test]
fn what_an_import_set_is_not_seen() {
    let mut site = Site::new(
        "import contextvars\nvar = contextvars.ContextVar('v', default='unset')\nvar.set('by import')\n\
         def app(environ, start_response):\n    start_response('200 OK', [])\n    return [var.get().encode()]\n",
    );
    assert_eq!(site.get("/").body(), "unset");
}
