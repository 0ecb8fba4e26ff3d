//! Both sides of a message exchange as tables of (state, step).
//!
//! Owns: which step is allowed in which state, and where it leads. Other code only walks the tables.
//! Must not: see a byte of a message. Pure data, any thread.
//!
//! A step that a table doesn't list is a caller's mistake, never a client's: it leads to the state
//! from which the connection can only be closed (`Failed`, `Broken`), so that a mistake can't turn
//! into a second answer or a body read as a request.
#![forbid(unsafe_code)]

/// The client's side of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// No byte of a request seen (blank lines aside).
    Idle,
    /// Part of a head seen.
    Head,
    /// A head without a body was given out.
    Bodiless,
    /// Inside a body with a Content-Length.
    Counted,
    /// Inside a chunked body, its trailer section included.
    Chunked,
    /// The message is complete; the next one hasn't been asked for.
    Done,
    /// The client has ended its side between messages.
    Closed,
    /// Nothing that follows can be trusted to be HTTP.
    Failed,
}

/// What happens on the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestStep {
    /// A first or a further part of a head, not all of it.
    PartialHead,
    HeadBodiless,
    HeadCounted,
    HeadChunked,
    /// Body bytes or framing, not the last.
    Part,
    /// The body is complete.
    Last,
    /// The caller asks for the next message.
    Next,
    /// The client will send nothing more.
    EndOfInput,
    /// The client broke a rule.
    Fault,
}

pub(super) const REQUEST_RULES: &[(RequestState, RequestStep, RequestState)] = {
    use RequestState::*;
    use RequestStep::*;
    &[
        (Idle, PartialHead, Head),
        (Idle, HeadBodiless, Bodiless),
        (Idle, HeadCounted, Counted),
        (Idle, HeadChunked, Chunked),
        (Idle, EndOfInput, Closed),
        (Idle, Next, Idle),
        (Idle, Fault, Failed),
        (Head, PartialHead, Head),
        (Head, HeadBodiless, Bodiless),
        (Head, HeadCounted, Counted),
        (Head, HeadChunked, Chunked),
        (Head, EndOfInput, Failed),
        (Head, Fault, Failed),
        (Bodiless, Last, Done),
        (Bodiless, EndOfInput, Bodiless),
        (Counted, Part, Counted),
        (Counted, Last, Done),
        (Counted, EndOfInput, Failed),
        (Counted, Fault, Failed),
        (Chunked, Part, Chunked),
        (Chunked, Last, Done),
        (Chunked, EndOfInput, Failed),
        (Chunked, Fault, Failed),
        (Done, Next, Idle),
        (Done, EndOfInput, Done),
        (Closed, EndOfInput, Closed),
        (Failed, EndOfInput, Failed),
        (Failed, Fault, Failed),
    ]
};

const REQUEST_STATES: usize = RequestState::Failed as usize + 1;
const REQUEST_STEPS: usize = RequestStep::Fault as usize + 1;

static REQUEST: [[RequestState; REQUEST_STEPS]; REQUEST_STATES] = {
    let mut table = [[RequestState::Failed; REQUEST_STEPS]; REQUEST_STATES];
    let mut i = 0;
    while i < REQUEST_RULES.len() {
        let (from, step, to) = REQUEST_RULES[i];
        table[from as usize][step as usize] = to;
        i += 1;
    }
    table
};

impl RequestState {
    pub(super) fn after(self, step: RequestStep) -> RequestState {
        REQUEST[self as usize][step as usize]
    }
}

/// The server's side of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseState {
    /// No final head written.
    Open,
    /// A body with a Content-Length.
    Counted,
    /// A chunked body.
    Chunked,
    /// A body that ends with the connection.
    UntilClose,
    /// No body whatever the application gives: HEAD, 1xx, 204, 205, 304.
    Bodiless,
    /// The answer is complete.
    Ended,
    /// The client can't tell where the answer ends: only closing the connection is left.
    Broken,
}

/// What happens on the server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStep {
    /// A 1xx head other than 101: another head follows.
    Interim,
    HeadCounted,
    HeadChunked,
    HeadUntilClose,
    HeadBodiless,
    Data,
    /// The body ended where its framing says.
    End,
    /// The body ended before that.
    EndShort,
}

pub(super) const RESPONSE_RULES: &[(ResponseState, ResponseStep, ResponseState)] = {
    use ResponseState::*;
    use ResponseStep::*;
    &[
        (Open, Interim, Open),
        (Open, HeadCounted, Counted),
        (Open, HeadChunked, Chunked),
        (Open, HeadUntilClose, UntilClose),
        (Open, HeadBodiless, Bodiless),
        (Counted, Data, Counted),
        (Counted, End, Ended),
        (Counted, EndShort, Broken),
        (Chunked, Data, Chunked),
        (Chunked, End, Ended),
        (UntilClose, Data, UntilClose),
        (UntilClose, End, Ended),
        (Bodiless, Data, Bodiless),
        (Bodiless, End, Ended),
        (Ended, End, Ended),
    ]
};

const RESPONSE_STATES: usize = ResponseState::Broken as usize + 1;
const RESPONSE_STEPS: usize = ResponseStep::EndShort as usize + 1;

static RESPONSE: [[ResponseState; RESPONSE_STEPS]; RESPONSE_STATES] = {
    let mut table = [[ResponseState::Broken; RESPONSE_STEPS]; RESPONSE_STATES];
    let mut i = 0;
    while i < RESPONSE_RULES.len() {
        let (from, step, to) = RESPONSE_RULES[i];
        table[from as usize][step as usize] = to;
        i += 1;
    }
    table
};

impl ResponseState {
    pub(super) fn after(self, step: ResponseStep) -> ResponseState {
        RESPONSE[self as usize][step as usize]
    }
}
