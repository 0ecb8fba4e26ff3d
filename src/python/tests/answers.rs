//! PEP 3333 "The start_response() Callable" and "Error Handling".

use super::{Setting, Site};

/// A module whose `app` runs `body` (indented once), with names for what it leaves behind.
fn site(body: &str) -> Site {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    Site::new(&format!(
        "import sys\nkept = []\nseen = []\ndef app(environ, start_response):\n{body}"
    ))
}

#[test]
fn a_plain_answer() {
    let mut site =
        site("start_response('201 Made Up', [('X-A', 'b'), ('X-A', 'c')])\nreturn [b'hello']");
    let reply = site.get("/");
    assert!(
        reply
            .head()
            .starts_with("HTTP/1.1 201 Made Up\r\nX-A: b\r\nX-A: c\r\n"),
        "{}",
        reply.head()
    );
    assert_eq!(reply.field("content-length").as_deref(), Some("5"));
    assert_eq!(reply.body(), "hello");
    assert_eq!(reply.ending, "KeepAlive");
}

#[test]
fn arguments_may_be_named() {
    for call in [
        "start_response(status='200 OK', headers=[('X', 'y')])",
        "start_response(status='200 OK', response_headers=[('X', 'y')])",
        "start_response('200 OK', response_headers=[('X', 'y')], exc_info=None)",
        "start_response('200 OK', [('X', 'y')], None)",
        "start_response(*('200 OK', (('X', 'y'),)))",
    ] {
        let reply = site(&format!("{call}\nreturn [b'x']")).get("/");
        assert_eq!(
            (reply.status(), reply.field("x").as_deref()),
            (200, Some("y")),
            "{call}"
        );
    }
}

/// What is wrong with a call is an exception in the application, and 500 if it does nothing about it.
#[test]
fn wrong_arguments() {
    for (call, exception) in [
        ("start_response()", "TypeError"),
        ("start_response('200 OK')", "TypeError"),
        ("start_response('200 OK', [], None, None)", "TypeError"),
        ("start_response('200 OK', [], other=1)", "TypeError"),
        ("start_response('200 OK', [], status='200 OK')", "TypeError"),
        ("start_response(200, [])", "TypeError"),
        ("start_response(b'200 OK', [])", "TypeError"),
        ("start_response('200', [])", "ValueError"),
        ("start_response('OK', [])", "ValueError"),
        ("start_response('999 X', [])", "ValueError"),
        ("start_response('100 Continue', [])", "ValueError"),
        ("start_response('200 OK\\r\\nX: y', [])", "ValueError"),
        ("start_response('200 \\u20ac', [])", "ValueError"),
        ("start_response('200 OK', None)", "TypeError"),
        ("start_response('200 OK', {'X': 'y'})", "TypeError"),
        ("start_response('200 OK', [('X',)])", "TypeError"),
        ("start_response('200 OK', ['Xy'])", "TypeError"),
        ("start_response('200 OK', [('X', 1)])", "TypeError"),
        ("start_response('200 OK', [(b'X', b'y')])", "TypeError"),
        (
            "start_response('200 OK', [('X', 'a\\r\\nY: 1')])",
            "ValueError",
        ),
        ("start_response('200 OK', [('X', 'a\\x00')])", "ValueError"),
        ("start_response('200 OK', [('X y', 'a')])", "ValueError"),
        ("start_response('200 OK', [('', 'a')])", "ValueError"),
        ("start_response('200 OK', [('X', '\\u20ac')])", "ValueError"),
        (
            "start_response('200 OK', [('Content-Length', 'x')])",
            "ValueError",
        ),
        ("start_response('200 OK', [], 5)", "TypeError"),
    ] {
        // What wrong exc_info means only shows when the headers are out.
        if call.ends_with("5)") {
            continue;
        }
        let mut uncaught = site(&format!("{call}\nreturn [b'x']"));
        let reply = uncaught.get("/");
        assert_eq!(reply.status(), 500, "{call}");
        assert_eq!(reply.ending, "Close", "{call}");
        let mut caught = site(&format!(
            "try:\n    {call}\nexcept Exception as e:\n    seen.append(type(e).__name__)\n\
             start_response('200 OK', [('X', 'second')])\nreturn [b'x']"
        ));
        let reply = caught.get("/");
        assert_eq!(caught.look("seen"), format!("['{exception}']"), "{call}");
        assert_eq!(
            (reply.status(), reply.field("x").as_deref()),
            (200, Some("second")),
            "{call}"
        );
    }
}

#[test]
fn str_subclasses_pass_and_latin_1_goes_out_as_it_is() {
    let mut site = site(
        "class S(str): pass\nclass T(tuple): pass\nclass L(list): pass\n\
         start_response(S('200 OK'), L([T((S('X'), S('Jos\\xe9')))]))\nreturn [b'x']",
    );
    let reply = site.get("/");
    assert!(
        reply
            .bytes
            .windows(9)
            .any(|bytes| bytes == b"X: Jos\xe9\r\n"),
        "{}",
        reply.text()
    );
}

#[test]
fn not_called_at_all() {
    for result in [
        "[b'x']",
        "[]",
        "iter([b'x'])",
        "iter([])",
        "(b'x' for _ in 'a')",
    ] {
        let reply = site(&format!("return {result}")).get("/");
        assert_eq!(reply.status(), 500, "{result}");
    }
}

#[test]
fn called_twice() {
    let mut site = site(
        "start_response('200 OK', [])\ntry:\n    start_response('201 X', [])\nexcept AssertionError as e:\n    \
         seen.append(str(e))\nreturn [b'x']",
    );
    assert_eq!(site.get("/").status(), 200);
    assert!(site.look("seen").contains("twice"));
}

#[test]
fn exc_info_replaces_what_was_not_sent() {
    let mut site = site(
        "start_response('200 OK', [('X', 'first'), ('Content-Length', '1')])\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    \
         start_response('500 Oops', [('X', 'second')], sys.exc_info())\nreturn [b'sorry']",
    );
    let reply = site.get("/");
    assert!(
        reply.head().starts_with("HTTP/1.1 500 Oops"),
        "{}",
        reply.head()
    );
    assert_eq!(reply.field("x").as_deref(), Some("second"));
    assert_eq!(reply.body(), "sorry");
}

#[test]
fn exc_info_is_raised_again_after_the_head_was_sent() {
    let mut site = site(
        "write = start_response('200 OK', [])\nwrite(b'begun')\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    \
         info = sys.exc_info()\n    try:\n        start_response('500 Oops', [], info)\n    \
         except ZeroDivisionError as e:\n        seen.append(e is info[1] and e.__traceback__ is not None)\n        raise",
    );
    let reply = site.get("/");
    assert_eq!(reply.status(), 200);
    assert!(reply.body().contains("begun"));
    assert!(
        !reply.body().ends_with("0\r\n\r\n"),
        "a body that was cut must not look whole"
    );
    assert_eq!(reply.ending, "Close");
    assert_eq!(site.look("seen"), "[True]");
}

#[test]
fn exc_info_of_a_wrong_form() {
    let mut site = site(
        "write = start_response('200 OK', [])\nwrite(b'x')\nfor wrong in (5, (1, 2), (None, None, None)):\n    \
         try:\n        start_response('500 Oops', [], wrong)\n    except Exception as e:\n        \
         seen.append(type(e).__name__)\nreturn []",
    );
    site.get("/");
    assert_eq!(
        site.look("seen"),
        "['TypeError', 'TypeError', 'AssertionError']"
    );
}

#[test]
fn write_sends_at_once_and_the_body_follows() {
    let mut site = site(
        "write = start_response('200 OK', [])\nwrite(b'one ')\nwrite(b'')\nwrite(b'two ')\nreturn [b'three']",
    );
    let reply = site.get("/");
    assert_eq!(
        reply.body(),
        "4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"
    );
    let mut site = super::answers::site(
        "write = start_response('200 OK', [('Content-Length', '3')])\nwrite(b'abc')\nreturn []",
    );
    let reply = site.get("/");
    assert_eq!(
        (reply.body().as_str(), reply.ending.as_str()),
        ("abc", "KeepAlive")
    );
}

#[test]
fn write_takes_bytes() {
    let mut site = site(
        "write = start_response('200 OK', [])\nfor wrong in ((), ('x',), (None,), (b'a', b'b')):\n    try:\n        \
         write(*wrong)\n    except TypeError:\n        seen.append(1)\nreturn [b'x']",
    );
    assert_eq!(site.get("/").status(), 200);
    assert_eq!(site.look("len(seen)"), "4");
}

#[test]
fn callables_that_were_kept_refuse_after_their_request() {
    let mut site = site(
        "if kept:\n    for call in (lambda: kept[0]('200 OK', []), lambda: kept[1](b'evil')):\n        try:\n            \
         call()\n        except RuntimeError as e:\n            seen.append(str(e))\n\
         kept.extend([start_response, start_response('200 OK', [])])\nreturn [b'mine']",
    );
    assert_eq!(site.get("/").body(), "mine");
    assert_eq!(site.get("/").body(), "mine");
    let seen = site.look("seen");
    assert_eq!(
        seen.matches("after its request had ended").count(),
        2,
        "{seen}"
    );
    // Nobody can tell from outside a request either.
    assert_eq!(
        site.look("[type(k).__name__ for k in kept[:2]]"),
        "['StartResponse', 'Write']"
    );
}

#[test]
fn callables_refuse_on_another_thread() {
    let mut site = site(
        "import threading\ndef other():\n    try:\n        start_response('500 Evil', [])\n    except RuntimeError as e:\n        \
         seen.append(str(e))\nt = threading.Thread(target=other)\nt.start()\nt.join()\n\
         start_response('200 OK', [])\nreturn [b'x']",
    );
    assert_eq!(site.get("/").status(), 200);
    assert!(
        site.look("seen").contains("another thread"),
        "{}",
        site.look("seen")
    );
}

#[test]
fn an_exception_in_the_application() {
    for raising in [
        "1 / 0",
        "raise SystemExit(3)",
        "raise KeyboardInterrupt",
        "raise StopIteration",
    ] {
        let mut site = site(raising);
        let reply = site.get("/");
        assert_eq!(
            (reply.status(), reply.ending.as_str()),
            (500, "Close"),
            "{raising}"
        );
        assert!(
            !reply.text().contains("ZeroDivision"),
            "the client must not see it"
        );
    }
    let mut site = site("start_response('200 OK', [('X', 'y')])\n1 / 0");
    let reply = site.get("/");
    assert_eq!((reply.status(), reply.field("x")), (500, None));
}

#[test]
fn the_applications_own_content_length_is_kept() {
    let mut shorter =
        site("start_response('200 OK', [('Content-Length', '3')])\nreturn [b'hello']");
    let reply = shorter.get("/");
    assert_eq!(
        (
            reply.field("content-length").as_deref(),
            reply.body().as_str()
        ),
        (Some("3"), "hel")
    );
    let mut longer = site("start_response('200 OK', [('Content-Length', '9')])\nreturn [b'hello']");
    let reply = longer.get("/");
    assert_eq!(
        (reply.body().as_str(), reply.ending.as_str()),
        ("hello", "Close")
    );
}

#[test]
fn reentered_while_it_reads_the_headers() {
    // A header's value whose destruction calls start_response: refused, and nothing of ours is corrupted.
    let mut site = Site::with(
        r#"
seen = []
def app(environ, start_response):
    class Evil(list):
        def __len__(self):
            start_response('500 Evil', [])
            return 1
    class Text(str):
        def __del__(self):
            try:
                start_response('500 Evil', [])
            except Exception as e:
                seen.append(type(e).__name__)
    headers = [('X', Text('y'))]
    start_response('200 OK', headers)
    headers.clear()
    return [b'x']
"#,
        Setting::default(),
    );
    assert_eq!(site.get("/").status(), 200);
    assert_eq!(site.look("seen"), "['AssertionError']");
}
