//! Headers, and what can be said of a script without running it.

use std::collections::{BTreeMap, BTreeSet};

use outgate::testing::{RedisServer, Reply};

use crate::{FILES, SCRIPTS, file, files_of, must, whole};

/// What a script may use that it does not define.
const GLOBALS: [&str; 15] = [
    "ARGV", "KEYS", "cmsgpack", "error", "ipairs", "math", "pairs", "pcall", "redis", "string", "struct", "table",
    "tonumber", "type", "unpack",
];

/// The comment in front of a script, without its dashes, and the code below.
fn parts(script: &str) -> (Vec<&str>, String) {
    let header = script.lines().take_while(|line| line.starts_with("--")).count();
    let (header, code) = (script.lines().take(header), script.lines().skip(header));
    (header.map(|line| line[2..].trim()).collect(), code.map(without_comment).collect::<Vec<_>>().join("\n"))
}

fn without_comment(line: &str) -> &str {
    line.split("--").next().unwrap_or_default()
}

/// The code of a script, all files joined.
fn code_of(script: &str) -> String {
    files_of(script).into_iter().map(|name| parts(file(name)).1).collect::<Vec<_>>().join("\n")
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Every word of some code.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter| !is_word(letter)).filter(|word| !word.is_empty())
}

/// The places of a list that some code reads by their number, in order: `a[5]`.
fn places(code: &str, list: &str) -> BTreeSet<usize> {
    let opening = format!("{list}[");
    let starts = code.match_indices(&opening).filter(|(at, _)| !code[..*at].ends_with(is_word));
    starts.filter_map(|(at, of)| code[at + of.len()..].split(']').next()?.parse().ok()).collect()
}

/// What an integer is compared with, where it is read by its place: `== 1` of `a[7] == 1`.
fn comparison(value: &str) -> &str {
    let rest = value.split_once(' ').map_or("", |(_, rest)| rest);
    rest.split_once(" a[").map_or(rest, |(rest, _)| rest)
}

/// The integers that a header names, by their places.
fn named_integers(header: &[&str]) -> BTreeMap<usize, String> {
    let from = header.iter().position(|line| line.starts_with("ARGV[1]")).unwrap_or(header.len());
    let until = header.iter().position(|line| line.starts_with("ARGV[2]")).unwrap_or(header.len());
    let mut of_line = header[from..until].iter().filter_map(|line| line.split_once(' '));
    let numbered: BTreeMap<usize, String> = of_line
        .by_ref()
        .filter_map(|(place, rest)| Some((place.parse().ok()?, rest.split_whitespace().next()?.to_owned())))
        .collect();
    if !numbered.is_empty() {
        return numbered;
    }
    // One after another, what is between brackets left out; then those of which there may be several.
    let text = header[from..until].join(" ");
    let Some((_, rest)) = text.split_once("as for book.lua;") else { return BTreeMap::new() };
    let plain: String = rest.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
    let names = plain.split("; then").next().unwrap_or_default().split([',', ';']);
    (5..).zip(names.map(|name| name.trim().to_owned())).collect()
}

#[test]
fn a_header_says_everything_in_order_and_briefly() {
    for script in SCRIPTS {
        let (header, _) = parts(file(script));
        assert!(header.len() <= 32, "{script}: {} lines", header.len());
        assert!(header[0].ends_with('.') && header[2].starts_with("Atomic, because "), "{script}: {header:?}");
        let word =
            |line: &&str| ["KEYS", "ARGV[", "Returns", "Errors: ", "Cost: "].iter().position(|w| line.starts_with(w));
        let order: Vec<usize> = header.iter().filter_map(word).collect();
        assert!(order.is_sorted(), "{script}: {order:?}");
        let parts = if header.iter().any(|line| line.starts_with("KEYS, ARGV")) { 4 } else { 5 };
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), parts, "{script}: something is missing");
        for part in 2..5 {
            assert_eq!(order.iter().filter(|&&one| one == part).count(), 1, "{script}: part {part}");
        }
    }
    for (name, text) in FILES.iter().filter(|(name, _)| !SCRIPTS.contains(name)) {
        assert!(text.starts_with("-- "), "{name} says what it is");
    }
}

#[test]
fn a_header_names_every_key_and_every_integer_that_is_read_by_its_place() {
    for script in SCRIPTS.into_iter().filter(|script| *script != "inspect") {
        let (header, code) = (parts(file(script)).0, code_of(script));
        let as_for_book = header.iter().any(|line| line.starts_with("KEYS, ARGV as for book.lua"));
        let book = parts(file("book")).0;
        let documented = if as_for_book { &book } else { &header };
        for place in places(&code, "KEYS") {
            let name = format!("KEYS[{place}");
            assert!(documented.iter().any(|line| line.starts_with(&name)), "{script}: {name}]");
        }
        assert_eq!(places(&code, "ARGV"), [1, 2].into(), "{script}");
        let mut integers = named_integers(documented);
        integers.extend((1..).zip(["number", "previous", "known", "latest"].map(str::to_owned)));
        let last = *integers.keys().last().unwrap_or(&0);
        let read = places(&code, "a");
        assert!(read.iter().all(|place| *place <= last), "{script}: {read:?} of {integers:?}");
        assert!(as_for_book || read.len() >= last - 1, "{script}: {read:?} of {integers:?}");
        // `local name = a[5]`, whatever is made of it.
        for line in code.lines().filter_map(|line| line.trim().strip_prefix("local ")) {
            let Some((names, values)) = line.split_once(" = ") else { continue };
            for (name, value) in names.split(", ").zip(values.split(", ")) {
                let plain = value.split([' ']).next().filter(|_| ["", "== 1", "~= 0 and"].contains(&comparison(value)));
                let place =
                    plain.filter(|value| value.starts_with("a[")).and_then(|value| places(value, "a").pop_first());
                let documented = place.and_then(|place| integers.get(&place));
                assert!(
                    documented.is_none_or(|documented| name.ends_with(&**documented)),
                    "{script}: {name} = {value}"
                );
            }
        }
    }
}

#[test]
fn only_the_head_decodes_the_arguments() {
    for (name, text) in FILES {
        let code = parts(text).1;
        assert_eq!(words(&code).any(|word| word == "ARGV"), ["head", "inspect"].contains(&name), "{name}");
    }
}

#[test]
fn a_header_lists_each_error_that_its_script_can_return() {
    let codes = |text: &str| -> BTreeSet<String> {
        text.split("error_reply('").skip(1).filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
    };
    for script in SCRIPTS {
        let (header, mut returned) = (parts(file(script)).0, codes(&code_of(script)));
        if header.iter().any(|line| line.contains("with number 0")) {
            returned.retain(|code| !["OUTDATED", "DUPLICATE"].contains(&&**code));
        }
        let errors = header.iter().find_map(|line| line.strip_prefix("Errors: ")).unwrap_or_default();
        let listed: BTreeSet<String> =
            words(errors).filter(|word| word.len() > 1 && *word == word.to_uppercase()).map(str::to_owned).collect();
        assert_eq!(listed, returned, "{script}");
    }
}

#[test]
fn every_function_is_called_and_every_constant_has_one_value() {
    let all: String = FILES.map(|(_, text)| parts(text).1).join("\n");
    let count = |name: &str| words(&all).filter(|word| *word == name).count();
    for function in all.split("function ").skip(1).filter_map(|rest| rest.split('(').next()) {
        let name = function.rsplit('.').next().unwrap_or_default();
        // Inspection calls by the kind of a key, which the crate names.
        assert!(name.is_empty() || function.starts_with("readable.") || count(name) > 1, "nobody calls {name}");
    }
    let locals = all.lines().filter_map(|line| line.trim().strip_prefix("local ")?.split(" =").next());
    let mut constants = BTreeSet::new();
    for name in locals.flat_map(|names| names.split(", ")).filter(|name| name.len() > 1 && *name == name.to_uppercase())
    {
        assert!(constants.insert(name), "{name} is defined twice");
        assert!(count(name) > 1, "nobody reads {name}");
    }
    assert!(constants.len() > 10, "{constants:?}");
}

#[test]
fn no_file_is_long() {
    for (name, text) in FILES {
        assert!(text.lines().count() <= 300, "{name}: {} lines", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{name} is wide");
    }
}

#[test]
fn every_script_loads_and_knows_every_global_that_it_uses() {
    let server = must(RedisServer::start());
    let allowed: BTreeSet<String> = GLOBALS.map(str::to_owned).into();
    for script in SCRIPTS {
        let text = whole(script);
        let loaded = must(server.command(&["SCRIPT", "LOAD", &text]));
        assert!(matches!(&loaded, Reply::Bulk(hash) if hash.len() == 40), "{script}: {loaded:?}");
        let dump = must(server.command(&["EVAL", "return string.dump(loadstring(ARGV[1]))", "0", &text]));
        let Reply::Bulk(bytes) = dump else { panic!("{script}: {dump:?}") };
        let mut used = BTreeSet::new();
        let mut chunk = Chunk(&bytes[12..]);
        chunk.function(&mut used);
        assert!(chunk.0.is_empty(), "{script}: the dump was understood to its end");
        assert!(used.contains("redis") && used.is_subset(&allowed), "{script} uses {used:?}");
    }
}

/// A compiled chunk of Lua 5.1 on a 64-bit machine, read from its front.
struct Chunk<'a>(&'a [u8]);

impl Chunk<'_> {
    /// Reads a function and those within it, and collects the globals that they read or write.
    fn function(&mut self, globals: &mut BTreeSet<String>) {
        const GET_GLOBAL: usize = 5;
        const SET_GLOBAL: usize = 7;
        self.string();
        self.skip(4 + 4 + 4);
        let code: Vec<usize> = (0..self.int()).map(|_| self.int()).collect();
        let constants: Vec<String> = (0..self.int()).map(|_| self.constant()).collect();
        let globally = code.iter().filter(|&word| [GET_GLOBAL, SET_GLOBAL].contains(&(word & 0x3f)));
        globals.extend(globally.map(|word| constants[word >> 14].clone()));
        for _ in 0..self.int() {
            self.function(globals);
        }
        let lines = self.int();
        self.skip(lines * 4);
        for _ in 0..self.int() {
            self.string();
            self.skip(4 + 4);
        }
        for _ in 0..self.int() {
            self.string();
        }
    }

    fn constant(&mut self) -> String {
        match self.skip(1)[0] {
            0 => {}
            1 => drop(self.skip(1)),
            3 => drop(self.skip(8)),
            4 => return self.string(),
            kind => panic!("no constant is of type {kind}"),
        }
        String::new()
    }

    fn string(&mut self) -> String {
        let size = must(self.skip(8).try_into().map(u64::from_le_bytes));
        let bytes = self.skip(must(usize::try_from(size)));
        String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
    }

    fn int(&mut self) -> usize {
        let int = must(self.skip(4).try_into().map(u32::from_le_bytes));
        must(usize::try_from(int))
    }

    fn skip(&mut self, count: usize) -> &[u8] {
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }
}
