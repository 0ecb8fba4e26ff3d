//! The names that ASGI uses, as interned strings: keys of scopes and messages, and the messages' types.
//!
//! Made once, on the main thread, never released; any attached thread may use them.

use super::super::ffi::PyObject;
use super::super::object::{Attached, Raised};

macro_rules! words {
    ($($name:ident $text:literal)*) => {
        /// Each is a str that lives as long as the process.
        pub struct Words { $(pub $name: *mut PyObject,)* }

        impl Words {
            pub fn make(py: Attached) -> Result<Words, Raised> {
                Ok(Words { $($name: py.interned($text)?.into_ptr(),)* })
            }
        }
    };
}

words! {
    // Keys of a scope.
    kind c"type"
    asgi c"asgi"
    version c"version"
    spec_version c"spec_version"
    http_version c"http_version"
    method c"method"
    scheme c"scheme"
    path c"path"
    raw_path c"raw_path"
    query_string c"query_string"
    root_path c"root_path"
    headers c"headers"
    client c"client"
    server c"server"
    state c"state"
    extensions c"extensions"
    subprotocols c"subprotocols"

    // Their values.
    http c"http"
    websocket c"websocket"

    // Types of messages to the application.
    http_request c"http.request"
    http_disconnect c"http.disconnect"
    websocket_connect c"websocket.connect"
    websocket_receive c"websocket.receive"
    websocket_disconnect c"websocket.disconnect"

    // Types of messages of the application's.
    http_start c"http.response.start"
    http_body c"http.response.body"
    http_pathsend c"http.response.pathsend"
    http_zerocopysend c"http.response.zerocopysend"
    http_early_hint c"http.response.early_hint"
    http_trailers c"http.response.trailers"
    websocket_accept c"websocket.accept"
    websocket_send c"websocket.send"
    websocket_close c"websocket.close"
    websocket_http_start c"websocket.http.response.start"
    websocket_http_body c"websocket.http.response.body"

    // Keys of messages.
    status c"status"
    body c"body"
    more_body c"more_body"
    trailers c"trailers"
    more_trailers c"more_trailers"
    links c"links"
    file c"file"
    offset c"offset"
    count c"count"
    text c"text"
    bytes c"bytes"
    code c"code"
    reason c"reason"
    subprotocol c"subprotocol"

    // Attributes and methods.
    done c"done"
    set_result c"set_result"
    throw c"throw"
    future_blocking c"_asyncio_future_blocking"
}

// SAFETY: strings that are never released and never change.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}
