//! Each public item is shown.
//!
//! Of what stands at the crate's root, and of what its methods give, each type and trait has an example of its own. In a module, whose
//! parts work together, each is named in an example of some part. A method has an example of its own, or is called in one of its type, or of
//! its module. Variants, fields, constants and aliases are shown where their type is; one law of the suite for stores stands for all.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{Documented, all};

const MODULES: [&str; 5] = ["error", "feedback", "ledger", "store", "testing"];

/// What is exported at the crate's root.
fn at_root() -> BTreeSet<&'static str> {
    let exports = include_str!("../../src/lib.rs").lines().filter_map(|line| line.strip_prefix("pub use "));
    let words = exports.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
    words.filter(|word| word.starts_with(char::is_uppercase)).collect()
}

/// Whether a text has it as a word.
fn has(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// Whether a text calls it.
fn calls(text: &str, name: &str) -> bool {
    let is_called = |path: &str, end: &str| text.contains(&format!("{path}{name}{end}"));
    is_called(".", "(") || ["(", "::<", ")", ";"].into_iter().any(|end| is_called("::", end))
}

#[test]
fn each_public_item_has_an_example() {
    let (items, at_root) = (all(), at_root());
    let (mut of_type, mut of_module) = (BTreeMap::new(), BTreeMap::new());
    for Documented { module, of, name, example } in &items {
        let owner = (module, of.as_ref().unwrap_or(name));
        of_type.entry(owner).or_insert_with(String::new).push_str(example);
        of_module.entry(module).or_insert_with(String::new).push_str(example);
    }
    let is_shown = |item: &&&Documented| {
        let in_module = MODULES.contains(&&*item.module);
        !item.example.is_empty()
            || match &item.of {
                None if at_root.contains(&*item.name) => false,
                None => in_module && has(&of_module[&item.module], &item.name),
                Some(of) => {
                    calls(&of_type[&(&item.module, of)], &item.name)
                        || in_module && calls(&of_module[&item.module], &item.name)
                }
            }
    };
    let all: Vec<_> = items.iter().filter(|item| !item.name.is_empty() && !item.name.starts_with("law_")).collect();
    assert!(all.len() > 400, "only {} were found", all.len());
    let missing = all.iter().filter(|item| !is_shown(item));
    let missing: Vec<_> =
        missing.map(|item| [&*item.module, item.of.as_deref().unwrap_or(""), &*item.name].join(" ")).collect();
    assert!(missing.is_empty(), "{} of {} have no example:\n{}", missing.len(), all.len(), missing.join("\n"));
}
