//! A connection's two states as tables of (state, step).
//!
//! Owns: which frame may follow which (RFC 6455 5.4), and the closing handshake (RFC 6455 7.1). Other code only
//! walks the tables. Must not: see a byte. Pure data, any thread.
#![forbid(unsafe_code)]

/// Where the client is in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assembly {
    /// No message begun.
    Between,
    /// Some frames of a message have come, not the last.
    Inside,
}

/// A data frame, by its opcode and FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Text or Binary without FIN.
    First,
    /// Text or Binary with FIN.
    Only,
    /// Continuation without FIN.
    Next,
    /// Continuation with FIN.
    Last,
}

/// What isn't listed is a protocol error.
pub(super) const ASSEMBLY_RULES: &[(Assembly, Part, Assembly)] = {
    use Assembly::*;
    use Part::*;
    &[
        (Between, Only, Between),
        (Between, First, Inside),
        (Inside, Next, Inside),
        (Inside, Last, Between),
    ]
};

static ASSEMBLY: [[Option<Assembly>; 4]; 2] = {
    let mut table = [[None; 4]; 2];
    let mut i = 0;
    while i < ASSEMBLY_RULES.len() {
        let (from, part, to) = ASSEMBLY_RULES[i];
        table[from as usize][part as usize] = Some(to);
        i += 1;
    }
    table
};

impl Assembly {
    pub(super) fn after(self, part: Part) -> Option<Assembly> {
        ASSEMBLY[self as usize][part as usize]
    }
}

/// The closing handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Neither side has closed.
    Open,
    /// This side has; data is read and dropped, pings are answered, until the client's Close comes.
    CloseSent,
    /// Nothing more is read or written.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkStep {
    /// This side sends a Close frame of its own accord.
    SendClose,
    /// The client's Close frame came; unless this side has sent one, it is answered.
    PeerClose,
    /// The client broke a rule; unless this side has sent a Close frame, one is sent.
    Fault,
    /// The client will send nothing more.
    EndOfInput,
}

pub(super) const LINK_RULES: &[(Link, LinkStep, Link)] = {
    use Link::*;
    use LinkStep::*;
    &[
        (Open, SendClose, CloseSent),
        (Open, PeerClose, Closed),
        (Open, Fault, Closed),
        (Open, EndOfInput, Closed),
        (CloseSent, PeerClose, Closed),
        (CloseSent, Fault, Closed),
        (CloseSent, EndOfInput, Closed),
        (Closed, EndOfInput, Closed),
    ]
};

static LINK: [[Link; 4]; 3] = {
    let mut table = [[Link::Closed; 4]; 3];
    let mut i = 0;
    while i < LINK_RULES.len() {
        let (from, step, to) = LINK_RULES[i];
        table[from as usize][step as usize] = to;
        i += 1;
    }
    table
};

impl Link {
    pub(super) fn after(self, step: LinkStep) -> Link {
        LINK[self as usize][step as usize]
    }
}
