//! The tables themselves: no rule twice, no way out of a fault, every state of use.

use std::collections::HashSet;

use crate::http1::state::{
    REQUEST_RULES, RESPONSE_RULES, RequestState, RequestStep, ResponseState, ResponseStep,
};

fn all<T: Copy + PartialEq>(states: impl Iterator<Item = T>) -> Vec<T> {
    states.fold(Vec::new(), |mut seen, state| {
        if !seen.contains(&state) {
            seen.push(state);
        }
        seen
    })
}

#[test]
fn no_rule_is_given_twice() {
    let request: HashSet<_> = REQUEST_RULES
        .iter()
        .map(|r| (r.0 as u8, r.1 as u8))
        .collect();
    assert_eq!(request.len(), REQUEST_RULES.len());
    let response: HashSet<_> = RESPONSE_RULES
        .iter()
        .map(|r| (r.0 as u8, r.1 as u8))
        .collect();
    assert_eq!(response.len(), RESPONSE_RULES.len());
}

#[test]
fn the_compiled_table_says_what_the_rules_say() {
    let states = all(REQUEST_RULES.iter().flat_map(|rule| [rule.0, rule.2]));
    let steps = all(REQUEST_RULES.iter().map(|rule| rule.1));
    assert_eq!((states.len(), steps.len()), (8, 9));
    for &from in &states {
        for &step in &steps {
            let listed = REQUEST_RULES
                .iter()
                .find(|rule| (rule.0, rule.1) == (from, step));
            assert_eq!(
                from.after(step),
                listed.map_or(RequestState::Failed, |rule| rule.2)
            );
        }
    }
    let states = all(RESPONSE_RULES.iter().flat_map(|rule| [rule.0, rule.2]));
    let steps = all(RESPONSE_RULES.iter().map(|rule| rule.1));
    assert_eq!((states.len(), steps.len()), (7, 8));
    for &from in &states {
        for &step in &steps {
            let listed = RESPONSE_RULES
                .iter()
                .find(|rule| (rule.0, rule.1) == (from, step));
            assert_eq!(
                from.after(step),
                listed.map_or(ResponseState::Broken, |rule| rule.2)
            );
        }
    }
}

#[test]
fn faults_are_final() {
    for rule in REQUEST_RULES {
        if rule.0 == RequestState::Failed {
            assert_eq!(rule.2, RequestState::Failed);
        }
        assert_ne!(
            (rule.1, rule.2 != RequestState::Failed),
            (RequestStep::Fault, true)
        );
        // Nobody gets to a next message but from the end of one, or before the first.
        if rule.1 == RequestStep::Next {
            assert!(matches!(rule.0, RequestState::Idle | RequestState::Done));
        }
        // A body's bytes never make a head.
        if matches!(rule.0, RequestState::Counted | RequestState::Chunked) {
            assert!(!matches!(rule.2, RequestState::Idle | RequestState::Head));
        }
    }
    assert!(
        RESPONSE_RULES
            .iter()
            .all(|rule| rule.0 != ResponseState::Broken)
    );
}

#[test]
fn one_final_head_per_answer() {
    for rule in RESPONSE_RULES {
        if rule.2 == ResponseState::Open {
            assert_eq!(
                (rule.0, rule.1),
                (ResponseState::Open, ResponseStep::Interim)
            );
        }
        let is_head = !matches!(
            rule.1,
            ResponseStep::Data | ResponseStep::End | ResponseStep::EndShort
        );
        assert_eq!(is_head, rule.0 == ResponseState::Open);
    }
}
