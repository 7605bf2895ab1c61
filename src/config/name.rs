//! Names of upstreams, which keys, errors and traces show. What can be no name is not shown: it may be a secret.

use std::sync::Arc;

const LONGEST: usize = 64;
const LONGEST_UNIT: usize = 32;

/// What is wrong with a name.
pub(crate) fn fault(name: &str) -> Option<String> {
    let stranger = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_'));
    let fault = match stranger {
        Some(stranger) => format!("has {stranger:?}"),
        None if name.is_empty() => "is empty".to_owned(),
        None if name.len() > LONGEST => format!("has {} characters", name.len()),
        None => return None,
    };
    Some(format!("{fault}, and must be 1 to {LONGEST} letters, digits, '.', '-' or '_'"))
}

/// What is wrong with the name of a unit.
pub(crate) fn unit_fault(unit: &str) -> Option<String> {
    let is_sound =
        (1..=LONGEST_UNIT).contains(&unit.len()) && unit.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (!is_sound).then(|| format!("must be 1 to {LONGEST_UNIT} letters, digits or '_'"))
}

/// A name as errors show it.
pub(crate) fn shown(name: &str) -> Arc<str> {
    if fault(name).is_none() { name.into() } else { "…".into() }
}
