//! `module:attribute`, what it may be and what is said when it is not.

use std::path::Path;

use super::super::StartError;
use super::super::app::{self, App};
use super::super::thread::ThreadState;
use super::{linked, start};
use crate::config::{AppSpec, Interface};

/// A directory of modules whose names no other test uses.
struct Modules {
    directory: tempfile::TempDir,
    thread: ThreadState,
}

impl Modules {
    fn new(files: &[(&str, &str)]) -> Modules {
        start();
        let directory = tempfile::tempdir().unwrap();
        for (name, source) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, source).unwrap();
        }
        Modules {
            directory,
            thread: ThreadState::make(),
        }
    }

    fn load_with(&self, spec: &str, change: impl FnOnce(&mut AppSpec)) -> Result<App, StartError> {
        let mut settings = AppSpec {
            spec: Some(spec.to_owned()),
            app_dir: self.directory.path().into(),
            ..linked()
        };
        change(&mut settings);
        self.thread.attached(|py| {
            let loaded = app::load(py, &settings);
            assert!(!py.has_exception(), "an exception was left behind");
            loaded
        })
    }

    fn load(&self, spec: &str) -> Result<App, StartError> {
        self.load_with(spec, |_| {})
    }

    #[track_caller]
    fn fails(&self, spec: &str, code: u8, texts: &[&str]) {
        let Err(error) = self.load(spec) else {
            panic!("{spec} was loaded")
        };
        assert_eq!(error.code, code, "{spec}: {error}");
        for text in texts {
            assert!(error.text.contains(text), "{spec}: {error}");
        }
    }
}

#[test]
fn every_way_to_name_an_application() {
    let modules = Modules::new(&[
        (
            "ways_plain.py",
            r#"
class Site:
    def __init__(self, *args, **named): self.args, self.named = args, named
    def __call__(self, environ, start_response): pass
    def method(self, environ, start_response): pass
    @classmethod
    def of_class(cls, environ, start_response): pass
site = Site()
def application(environ, start_response): pass
def make(*args, **named):
    site = Site(*args, **named)
    assert not args or (args, named) == ((1, 'a'), {'k': [True, None]}), (args, named)
    return site
def create_app(): return site
class holder:
    inner = site
async_free = lambda environ, start_response: None
"#,
        ),
        ("ways_app.py", "def app(environ, start_response): pass\n"),
        ("ways_package/__init__.py", ""),
        (
            "ways_package/wsgi.py",
            "from ways_package import other\napplication = other.application\n",
        ),
        (
            "ways_package/other.py",
            "def application(environ, start_response): pass\n",
        ),
    ]);
    for spec in [
        "ways_plain",
        "ways_plain:site",
        "ways_plain:application",
        "ways_plain:holder.inner",
        "ways_plain:site.method",
        "ways_plain:Site.of_class",
        "ways_plain:make()",
        "ways_plain:make( 1, 'a', k=[True, None] )",
        "ways_plain:async_free",
        "ways_app",
        "ways_package.wsgi",
        "ways_package.wsgi:application",
    ] {
        modules
            .load(spec)
            .unwrap_or_else(|error| panic!("{spec}: {error}"));
    }
    for spec in ["ways_plain", "ways_plain:create_app"] {
        modules
            .load_with(spec, |settings| settings.factory = true)
            .unwrap_or_else(|error| panic!("{spec}: {error}"));
    }
}

#[test]
fn what_is_missing_is_named() {
    let modules = Modules::new(&[
        (
            "missing_site.py",
            "def aplication(environ, start_response): pass\ndef my_app(a, b): pass\nx = 5\n",
        ),
        ("missing_inside.py", "import missing_nowhere_else\n"),
        ("missing_package/__init__.py", ""),
        (
            "missing_package/wsgi.py",
            "import missing_package.settings\n",
        ),
        ("missing_raising.py", "def helper():\n    1 / 0\nhelper()\n"),
        (
            "missing_exit.py",
            "import sys\nsys.exit('no configuration')\n",
        ),
        ("missing_syntax.py", "def f(:\n"),
        (
            "missing_factory.py",
            "def make():\n    raise ValueError('no database')\nnot_callable = 3\ndef nothing(): pass\n",
        ),
    ]);
    modules.fails(
        "missing_entirely:app",
        3,
        &["no module named missing_entirely"],
    );
    modules.fails(
        "missing_package.nothing:app",
        3,
        &["no module named missing_package.nothing"],
    );
    modules.fails(
        "missing_elsewhere.wsgi:app",
        3,
        &[
            "no module named missing_elsewhere.wsgi",
            "package missing_elsewhere",
        ],
    );
    // Not the module itself, but what it imports: with the traceback.
    modules.fails(
        "missing_inside:app",
        3,
        &[
            "Traceback",
            "import missing_nowhere_else",
            "No module named 'missing_nowhere_else'",
            "importing missing_inside failed",
        ],
    );
    modules.fails(
        "missing_package.wsgi",
        3,
        &[
            "Traceback",
            "missing_package.settings",
            "importing missing_package.wsgi failed",
        ],
    );
    modules.fails(
        "missing_raising:app",
        3,
        &[
            "Traceback",
            "in helper",
            "ZeroDivisionError",
            "importing missing_raising failed",
        ],
    );
    modules.fails("missing_exit:app", 3, &["no configuration", "sys.exit()"]);
    modules.fails(
        "missing_syntax:app",
        3,
        &["SyntaxError", "importing missing_syntax failed"],
    );
    modules.fails(
        "missing_site:application",
        3,
        &[
            "no attribute `application`",
            "missing_site:aplication",
            "missing_site:my_app",
        ],
    );
    modules.fails(
        "missing_site",
        3,
        &["no `application` and no `app`", "missing_site:my_app"],
    );
    modules.fails("missing_site:x", 3, &["int is not callable"]);
    modules.fails(
        "missing_site:my_app.inner",
        3,
        &["missing_site.my_app has no attribute `inner`"],
    );
    modules.fails(
        "missing_factory:make()",
        3,
        &["Traceback", "no database", "missing_factory:make() failed"],
    );
    modules.fails("missing_factory:not_callable()", 3, &["not callable"]);
    modules.fails(
        "missing_factory:nothing()",
        3,
        &["NoneType is not callable"],
    );
    modules.fails("missing_factory:make(x)", 2, &["only literals"]);
    modules.fails("missing_factory:make(**{})", 2, &["only literals"]);
    modules.fails("missing_factory:make(1 if", 2, &["not closed"]);
    modules.fails(
        "dir/missing.py",
        2,
        &["--app-dir DIRECTORY missing:application"],
    );
    let Err(error) = modules.load_with("missing_site", |settings| settings.spec = None) else {
        panic!()
    };
    assert_eq!(error.code, 2);
    let Err(error) = modules.load_with("missing_site", |settings| {
        settings.app_dir = Path::new("/no/such").into()
    }) else {
        panic!()
    };
    assert_eq!(error.code, 2);
    assert!(error.text.contains("--app-dir /no/such"), "{error}");
}

#[test]
fn asgi_applications_are_told_apart() {
    let modules = Modules::new(&[(
        "asgi_kinds.py",
        r#"
import functools
async def function(scope, receive, send): pass
class Instance:
    async def __call__(self, scope, receive, send): pass
    async def method(self, scope, receive, send): pass
    def plain(self, environ, start_response): pass
instance = Instance()
partial = functools.partial(function)
def legacy(scope):
    async def inner(receive, send): pass
    return inner
class Legacy:
    def __init__(self, scope): pass
    async def __call__(self, receive, send): pass
def three(scope, receive, send): return function(scope, receive, send)

class Wsgi:
    def __init__(self, environ, start_response): pass
    def __iter__(self): return iter([])
def anything(*args, **named): pass
def defaults(environ, start_response, extra=None): pass
bound = functools.partial(lambda extra, environ, start_response: None, 1)
class Callable:
    def __call__(self, environ, start_response): pass
callable_ = Callable()
def wrapped(environ, start_response): pass
"#,
    )]);
    let load = |name: &str, interface| {
        modules
            .load_with(&format!("asgi_kinds:{name}"), |settings| {
                settings.interface = interface
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for name in [
        "function",
        "instance",
        "instance.method",
        "partial",
        "three",
    ] {
        assert!(
            matches!(load(name, Interface::Auto), App::Asgi(_)),
            "{name}"
        );
        // Whoever says that it is WSGI is believed.
        assert!(
            matches!(load(name, Interface::Wsgi), App::Wsgi(_)),
            "{name}"
        );
    }
    for name in ["legacy", "Legacy"] {
        modules.fails(
            &format!("asgi_kinds:{name}"),
            3,
            &["ASGI 2", "guarantee_single_callable"],
        );
        load(name, Interface::Wsgi);
    }
    for name in [
        "Wsgi",
        "anything",
        "defaults",
        "bound",
        "callable_",
        "wrapped",
        "instance.plain",
    ] {
        assert!(
            matches!(load(name, Interface::Auto), App::Wsgi(_)),
            "{name}"
        );
        assert!(
            matches!(load(name, Interface::Asgi), App::Asgi(_)),
            "{name}"
        );
    }
}
