//! Headers, and what can be said of a script without running it.

use std::collections::{BTreeMap, BTreeSet};

use outgate::testing::{RedisServer, Reply};

use crate::{PRELUDE, SCRIPTS, TELL, must, whole};

/// What a script may use that it does not define.
const GLOBALS: [&str; 14] = [
    "ARGV", "KEYS", "cmsgpack", "error", "ipairs", "math", "pairs", "pcall", "redis", "string", "table", "tonumber",
    "type", "unpack",
];
const ALL: &str = "local keys, args = KEYS, ARGV";

/// The comment in front of a script, without its dashes, and the code below.
fn parts(script: &str) -> (Vec<&str>, Vec<&str>) {
    let lines: Vec<&str> = script.lines().collect();
    let header = lines.iter().take_while(|line| line.starts_with("--")).count();
    (lines[..header].iter().map(|line| line[2..].trim()).collect(), lines[header..].to_vec())
}

/// What the header documents: `KEYS[1]` and its name. A range such as `KEYS[2..]` is not named in the code.
fn documented(header: &[&str]) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let (mut named, mut ranges) = (BTreeMap::new(), BTreeSet::new());
    for line in header.iter().filter(|line| line.starts_with("KEYS[") || line.starts_with("ARGV[")) {
        let mut words = line.split_whitespace();
        let (place, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if place.contains("..") {
            ranges.insert(place[..4].to_owned());
        } else {
            let name = if place.starts_with("KEYS") { format!("{name}_key") } else { name.to_owned() };
            assert!(named.insert(place.to_owned(), name).is_none(), "{place} is documented twice");
        }
    }
    (named, ranges)
}

/// `local a, b = x, y` as pairs. A value of several results gives its first name the place it reads.
fn assignments(line: &str) -> Vec<(String, String)> {
    let Some((names, values)) = line.strip_prefix("local ").and_then(|line| line.split_once(" = ")) else {
        panic!("{line:?} names no argument");
    };
    names.split(", ").zip(values.split(", ")).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The one `KEYS[i]` or `ARGV[i]` in an expression.
fn place(value: &str) -> String {
    let start =
        value.find("KEYS[").or_else(|| value.find("ARGV[")).unwrap_or_else(|| panic!("{value:?} reads nothing"));
    value[start..].split_inclusive(']').next().unwrap_or_default().to_owned()
}

#[test]
fn a_header_says_everything_in_order_and_briefly() {
    for (verb, script) in SCRIPTS {
        let (header, _) = parts(script);
        assert!(header.len() <= 28, "{verb}: {} lines", header.len());
        assert!(header[0].ends_with('.') && header[2].starts_with("Atomic, because "), "{verb}: {header:?}");
        let word =
            |line: &&str| ["KEYS[", "ARGV[", "Returns ", "Errors: ", "Cost: "].iter().position(|w| line.starts_with(w));
        let order: Vec<usize> = header.iter().filter_map(word).collect();
        assert!(order.is_sorted(), "{verb}: {order:?}");
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 5, "{verb}: something is missing");
        for part in 2..5 {
            assert_eq!(order.iter().filter(|&&one| one == part).count(), 1, "{verb}: part {part}");
        }
    }
}

#[test]
fn the_first_lines_name_every_argument_as_documented_and_nobody_else_touches_them() {
    for shared in [PRELUDE, TELL] {
        assert!(!shared.contains("KEYS") && !shared.contains("ARGV"), "what is shared takes no arguments of its own");
    }
    for (verb, script) in SCRIPTS {
        let (header, code) = parts(script);
        let (named, ranges) = documented(&header);
        let first = code.iter().take_while(|line| line.contains("KEYS") || line.contains("ARGV")).count();
        let (mut found, mut whole) = (BTreeMap::new(), false);
        for line in &code[..first] {
            if *line == ALL {
                whole = true;
                continue;
            }
            for (name, value) in assignments(line) {
                assert!(found.insert(place(&value), name).is_none(), "{verb}: {value} is named twice");
            }
        }
        assert_eq!(found, named, "{verb}");
        assert_eq!(whole, !ranges.is_empty(), "{verb}: a range is read through {ALL:?}");
        let rest = code[first..].join("\n");
        assert!(!rest.contains("KEYS") && !rest.contains("ARGV"), "{verb}: below its first lines");
    }
}

#[test]
fn a_header_lists_each_error_that_its_script_can_return() {
    let codes = |text: &str| -> BTreeSet<String> {
        text.split("error_reply('").skip(1).filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
    };
    for (verb, script) in SCRIPTS {
        let (header, code) = parts(script);
        let code = code.join("\n");
        let mut returned = codes(&code);
        for function in reachable(&code) {
            returned.extend(codes(function));
        }
        let errors = header.iter().find_map(|line| line.strip_prefix("Errors: ")).unwrap_or_default();
        let listed: BTreeSet<String> = errors
            .split_whitespace()
            .filter(|word| word.len() > 1 && *word == word.to_uppercase())
            .map(str::to_owned)
            .collect();
        assert_eq!(listed, returned, "{verb}");
    }
}

/// The functions of the prelude that some code calls, and those that they call.
fn reachable(code: &str) -> Vec<&'static str> {
    let functions: Vec<_> = PRELUDE.split("\nlocal function ").skip(1).collect();
    let mut found: Vec<&'static str> = Vec::new();
    loop {
        let calls = |function: &str| {
            let call = format!("{}(", function.split('(').next().unwrap_or_default());
            code.contains(&call) || found.iter().any(|caller| caller.contains(&call))
        };
        let next: Vec<_> = functions.iter().copied().filter(|function| calls(function)).collect();
        if next.len() == found.len() {
            return found;
        }
        found = next;
    }
}

#[test]
fn every_script_loads_and_knows_every_global_that_it_uses() {
    let server = must(RedisServer::start());
    let allowed: BTreeSet<String> = GLOBALS.map(str::to_owned).into();
    for (verb, script) in SCRIPTS {
        let script = whole(verb, script);
        let loaded = must(server.command(&["SCRIPT", "LOAD", &script]));
        assert!(matches!(&loaded, Reply::Bulk(hash) if hash.len() == 40), "{verb}: {loaded:?}");
        let dump = must(server.command(&["EVAL", "return string.dump(loadstring(ARGV[1]))", "0", &script]));
        let Reply::Bulk(bytes) = dump else { panic!("{verb}: {dump:?}") };
        let mut used = BTreeSet::new();
        let mut chunk = Chunk(&bytes[12..]);
        chunk.function(&mut used);
        assert!(chunk.0.is_empty(), "{verb}: the dump was understood to its end");
        assert!(used.contains("redis") && used.is_subset(&allowed), "{verb} uses {used:?}");
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
