//! From the command line's `module:attribute` to a callable: the spec's grammar, the import, and what is said when it
//! does not work.
//!
//! Owns the rules of the application's name. Runs on the main thread, attached, before any handler exists.

use super::asgi::AsgiApp;
use super::interface::{self, Interface};
use super::object::{Attached, Exception, Owned, Raised};
use super::wsgi::WsgiApp;
use super::{StartError, fault, ffi};
use crate::config::{self, AppSpec};

/// A loaded application, ready to make handlers for.
pub enum App {
    Wsgi(WsgiApp),
    Asgi(AsgiApp),
}

/// What the spec says: `module[:attribute[.attribute…][(arguments)]]`.
#[derive(Debug, PartialEq, Eq)]
struct Spec<'a> {
    module: &'a str,
    attribute: Option<&'a str>,
    /// The text between the parentheses of a call; `Some("")` for `factory()`.
    call: Option<&'a str>,
}

/// Attributes that are tried in this order when the spec names none.
const DEFAULT_ATTRIBUTES: [&str; 2] = ["application", "app"];
/// The same with `--factory`.
const DEFAULT_FACTORIES: [&str; 2] = ["create_app", "make_app"];

impl<'a> Spec<'a> {
    fn parse(text: &'a str) -> Result<Spec<'a>, StartError> {
        let wrong =
            |why: &str| StartError::usage(format!("{text:?} does not name an application: {why}"));
        let (module, rest) = match text.split_once(':') {
            Some((module, rest)) => (module, Some(rest)),
            None => (text, None),
        };
        if module.contains('/') || module.ends_with(".py") {
            let stem = std::path::Path::new(module)
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or("app");
            return Err(wrong(&format!(
                "write a module's name, not a file's: `--app-dir DIRECTORY {stem}:application`"
            )));
        }
        if !is_dotted(module) {
            return Err(wrong(
                "write `module:attribute`, as in `mysite.wsgi:application`",
            ));
        }
        let (attribute, call) = match rest {
            None => (None, None),
            Some(rest) => match rest.split_once('(') {
                None => (Some(rest), None),
                Some((name, arguments)) => match arguments.strip_suffix(')') {
                    Some(arguments) => (Some(name), Some(arguments.trim())),
                    None => return Err(wrong("a parenthesis is not closed")),
                },
            },
        };
        if attribute.is_some_and(|attribute| !is_dotted(attribute)) {
            return Err(wrong(
                "what follows the colon must be a name, or a call such as `create_app()`",
            ));
        }
        Ok(Spec {
            module,
            attribute,
            call,
        })
    }
}

/// `name(.name)*`, names being what Python takes for identifiers as far as ASCII goes.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(|name| {
        let mut characters = name.chars();
        characters
            .next()
            .is_some_and(|first| first.is_alphabetic() || first == '_')
            && characters.all(|character| character.is_alphanumeric() || character == '_')
    })
}

/// Imports the module and fetches (or makes) the application.
pub fn load(py: Attached, settings: &AppSpec) -> Result<App, StartError> {
    let Some(text) = settings.spec.as_deref() else {
        return Err(StartError::usage(
            "no application was named: write `m0serve module:attribute`".to_owned(),
        ));
    };
    let spec = Spec::parse(text)?;
    insert_app_dir(py, settings)?;
    let module = import(py, spec.module)?;
    let mut app = find(py, &module, &spec, settings)?;
    if spec.call.is_some() || settings.factory {
        app = call_factory(py, &app, &spec)?;
    }
    if !app.is_callable() {
        // SAFETY: attached; a live object.
        let class = unsafe { super::object::class_name(app.ptr()) };
        return Err(StartError::application(format!(
            "{text}: a {class} is not callable, so it can't be the application"
        )));
    }
    let interface = match settings.interface {
        config::Interface::Auto => interface::detect(py, &app),
        config::Interface::Asgi => Interface::Asgi("as --interface says"),
        config::Interface::Wsgi => Interface::Wsgi,
    };
    match interface {
        Interface::Wsgi => Ok(App::Wsgi(WsgiApp::new(py, app, settings))),
        Interface::Asgi(_) => AsgiApp::new(py, app, settings)
            .map(App::Asgi)
            .map_err(|raised| failed(py, raised, "asyncio can't be used".to_owned())),
        Interface::Asgi2 => Err(StartError::application(format!(
            "{text} takes one argument, as the applications of ASGI 2 do, which is not served: wrap it in \
             asgiref.compatibility.guarantee_single_callable, or say --interface wsgi or asgi if it is neither"
        ))),
    }
}

/// `sys.path[0]` is the application's directory, as it is the script's for `python3 script.py`.
fn insert_app_dir(py: Attached, settings: &AppSpec) -> Result<(), StartError> {
    let directory = std::fs::canonicalize(&settings.app_dir).map_err(|error| {
        StartError::usage(format!("--app-dir {}: {error}", settings.app_dir.display()))
    })?;
    let inserted = (|| {
        let path = super::probe::c_path(&directory).map_err(|_| Raised)?;
        // SAFETY: attached; a C string in the file system's encoding.
        let name = unsafe { Owned::new(ffi::PyUnicode_DecodeFSDefault(path.as_ptr()))? };
        let list = py.attribute(&py.import(c"sys")?, c"path")?;
        // SAFETY: attached; PyList_Insert checks that it is a list, and takes a reference of its own.
        match unsafe { ffi::PyList_Insert(list.ptr(), 0, name.ptr()) } {
            0 => Ok(()),
            _ => Err(Raised),
        }
    })();
    inserted.map_err(|raised| {
        failed(
            py,
            raised,
            format!("sys.path can't be set for {}", directory.display()),
        )
    })
}

fn import(py: Attached, name: &str) -> Result<Owned, StartError> {
    let c_name = std::ffi::CString::new(name).expect("a dotted name has no NUL");
    py.import(&c_name).map_err(|raised| {
        let Some(exception) = py.take_exception() else {
            return failed(py, raised, format!("importing {name} failed"));
        };
        if is_missing(py, &exception, name) {
            return StartError::application(missing_module(name));
        }
        let text = fault::text_of(py, &exception);
        let what = if fault::is_exit(py, &exception) {
            "called sys.exit()"
        } else {
            "failed"
        };
        StartError::application(format!("{text}importing {name} {what}"))
    })
}

/// True if the module itself or a package on the way to it was not found, and not something that it imports.
fn is_missing(py: Attached, exception: &Owned, name: &str) -> bool {
    if !py.is_instance(exception, Exception::ModuleNotFound) {
        return false;
    }
    let missing = py
        .attribute(exception, c"name")
        .and_then(|missing| py.text(&missing));
    match missing {
        Ok(missing) => {
            name == missing
                || name
                    .strip_prefix(missing.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
        }
        Err(Raised) => {
            drop(py.take_exception());
            false
        }
    }
}

fn missing_module(name: &str) -> String {
    let top = name.split('.').next().unwrap_or(name);
    let mut text = format!("there is no module named {name}");
    if top != name {
        text.push_str(&format!(" (or no package {top})"));
    }
    text.push_str(" in the application's directory (--app-dir) or the installed packages");
    text
}

fn find(
    py: Attached,
    module: &Owned,
    spec: &Spec,
    settings: &AppSpec,
) -> Result<Owned, StartError> {
    if let Some(attribute) = spec.attribute {
        let mut object = module.again();
        let mut path = spec.module.to_owned();
        for name in attribute.split('.') {
            object = match get(py, &object, name) {
                Ok(Some(found)) => found,
                Ok(None) => return Err(missing_attribute(py, &object, &path, name)),
                Err(raised) => {
                    return Err(failed(py, raised, format!("{path}.{name} can't be read")));
                }
            };
            path = format!("{path}.{name}");
        }
        return Ok(object);
    }
    let names = if settings.factory {
        DEFAULT_FACTORIES
    } else {
        DEFAULT_ATTRIBUTES
    };
    for name in names {
        match get(py, module, name) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(raised) => {
                return Err(failed(
                    py,
                    raised,
                    format!("{}.{name} can't be read", spec.module),
                ));
            }
        }
    }
    let mut text = format!(
        "the module {} has no `{}` and no `{}`",
        spec.module, names[0], names[1]
    );
    text.push_str(&suggestion(&candidates(py, module, names[1]), spec.module));
    Err(StartError::application(text))
}

fn get(py: Attached, object: &Owned, name: &str) -> Result<Option<Owned>, Raised> {
    let name = py.str(name)?;
    py.optional_attribute(object.ptr(), &name)
}

fn missing_attribute(py: Attached, object: &Owned, path: &str, name: &str) -> StartError {
    let text = format!("{path} has no attribute `{name}`");
    StartError::application(text + &suggestion(&candidates(py, object, name), path))
}

fn suggestion(candidates: &[String], path: &str) -> String {
    match candidates {
        [] => String::new(),
        names => {
            let names: Vec<_> = names.iter().map(|name| format!("{path}:{name}")).collect();
            format!("; did you mean {}?", names.join(" or "))
        }
    }
}

/// Public callables of `object` that are spelled like `name`, or look like an application: at most three.
fn candidates(py: Attached, object: &Owned, name: &str) -> Vec<String> {
    let listed = (|| {
        // SAFETY: attached; a live object; a list of strings, if nothing went wrong.
        let names = unsafe { Owned::new(ffi::PyObject_Dir(object.ptr()))? };
        // SAFETY: attached; PyObject_Dir returns a list that nobody else has seen.
        let count = unsafe { ffi::PyList_GET_SIZE(names.ptr()) };
        let mut near = Vec::new();
        for index in 0..count {
            // SAFETY: within the list's bounds.
            let key = unsafe { Owned::borrowed(ffi::PyList_GET_ITEM(names.ptr(), index)) };
            let text = py.text(&key)?;
            let distance = edit_distance(&text.to_lowercase(), &name.to_lowercase());
            let is_near = distance <= 2.min(name.len() / 2) || text.to_lowercase().contains("app");
            if text.starts_with('_') || !is_near {
                continue;
            }
            match py.optional_attribute(object.ptr(), &key) {
                Ok(Some(value)) if value.is_callable() => near.push((distance, text)),
                Ok(_) => {}
                Err(Raised) => drop(py.take_exception()),
            }
        }
        Ok(near)
    })();
    let mut near = listed.unwrap_or_else(|Raised| {
        drop(py.take_exception());
        Vec::new()
    });
    near.sort();
    near.into_iter().map(|(_, text)| text).take(3).collect()
}

/// Insertions, deletions and replacements that lead from one word to the other (Levenshtein).
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

fn call_factory(py: Attached, factory: &Owned, spec: &Spec) -> Result<Owned, StartError> {
    let name = spec.attribute.unwrap_or("the factory");
    if !factory.is_callable() {
        return Err(StartError::application(format!(
            "{}:{name} is not callable, so it can't make the application",
            spec.module
        )));
    }
    let made = match spec.call {
        None | Some("") => py.call(factory, []),
        Some(arguments) => {
            let (positional, named) = arguments_of(py, arguments).map_err(|raised| {
                drop(fault::take_text(py, raised));
                StartError::usage(format!(
                    "{name}({arguments}): only literals can be given to a factory"
                ))
            })?;
            // SAFETY: attached; a tuple and a dict, as `arguments_of` makes sure.
            unsafe {
                Owned::new(ffi::PyObject_Call(
                    factory.ptr(),
                    positional.ptr(),
                    named.ptr(),
                ))
            }
        }
    };
    made.map_err(|raised| failed(py, raised, format!("{}:{name}() failed", spec.module)))
}

/// The arguments in the spec's parentheses, which may be any literals, as a tuple and a dict.
fn arguments_of(py: Attached, text: &str) -> Result<(Owned, Owned), Raised> {
    let ast = py.import(c"ast")?;
    let parse = py.attribute(&ast, c"parse")?;
    let tree = py.call(
        &parse,
        [
            &py.str(&format!("f({text})"))?,
            &py.str("<arguments>")?,
            &py.str("eval")?,
        ],
    )?;
    let call = py.attribute(&tree, c"body")?;
    let literal = py.attribute(&ast, c"literal_eval")?;
    let is_starred_or_odd =
        |node: &Owned| -> Result<bool, Raised> { Ok(py.attribute(node, c"arg")?.is_none()) };

    let nodes = items(py, &py.attribute(&call, c"args")?)?;
    // SAFETY: attached; every item of the fresh tuple is set below, or the tuple is dropped with null items, which it bears.
    let positional = unsafe { Owned::new(ffi::PyTuple_New(nodes.len() as _))? };
    for (index, node) in nodes.iter().enumerate() {
        let value = py.call(&literal, [node])?;
        // SAFETY: attached; within bounds, and the reference is given away.
        unsafe { ffi::PyTuple_SetItem(positional.ptr(), index as _, value.into_ptr()) };
    }
    // SAFETY: attached.
    let named = unsafe { Owned::new(ffi::PyDict_New())? };
    for node in items(py, &py.attribute(&call, c"keywords")?)? {
        if is_starred_or_odd(&node)? {
            return Err(py.raise(Exception::Value, "** is not a literal"));
        }
        let value = py.call(&literal, [&py.attribute(&node, c"value")?])?;
        py.set_item(&named, &py.attribute(&node, c"arg")?, &value)?;
    }
    Ok((positional, named))
}

fn items(py: Attached, list: &Owned) -> Result<Vec<Owned>, Raised> {
    // SAFETY: attached; PySequence_Tuple takes any iterable, and returns a tuple that nobody else changes.
    unsafe {
        let tuple = Owned::new(ffi::PySequence_Tuple(list.ptr()))?;
        let _ = py;
        Ok((0..ffi::PyTuple_GET_SIZE(tuple.ptr()))
            .map(|index| Owned::borrowed(ffi::PyTuple_GET_ITEM(tuple.ptr(), index)))
            .collect())
    }
}

/// An exception on the way to the application: its traceback, then what it means.
fn failed(py: Attached, raised: Raised, what: String) -> StartError {
    StartError::application(format!("{}{what}", fault::take_text(py, raised)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        let spec = |text| Spec::parse(text).unwrap();
        assert_eq!(
            spec("a"),
            Spec {
                module: "a",
                attribute: None,
                call: None
            }
        );
        assert_eq!(
            spec("a.b:c.d"),
            Spec {
                module: "a.b",
                attribute: Some("c.d"),
                call: None
            }
        );
        assert_eq!(
            spec("a:f()"),
            Spec {
                module: "a",
                attribute: Some("f"),
                call: Some("")
            }
        );
        assert_eq!(spec("a:f('x', k=(1, 2))").call, Some("'x', k=(1, 2)"));
        for wrong in [
            "",
            ":app",
            "a:",
            "a:b(",
            "a b:c",
            "a:b c",
            "a..b",
            "a:1",
            "dir/app.py",
            "app.py:app",
        ] {
            assert_eq!(Spec::parse(wrong).unwrap_err().code, 2, "{wrong}");
        }
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("application", "aplication"), 1);
        assert_eq!(edit_distance("app", "app"), 0);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
