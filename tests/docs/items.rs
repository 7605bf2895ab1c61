//! The public items of the crate, as its source has them.
//!
//! What is `pub` in the source can be reached from outside: the lint `unreachable_pub` sees to that.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, Ident, ImplItem, Item, Lit, Meta, Type, Visibility};

/// A public type, trait, function or method, or the docs of a file.
#[derive(Debug)]
pub(crate) struct Documented {
    /// The folder below `src` that it is in, or its file there.
    pub(crate) module: String,
    /// The type that it is a method of.
    pub(crate) of: Option<String>,
    /// Its name; that of a file's docs is empty.
    pub(crate) name: String,
    /// What stands in the fences of its docs.
    pub(crate) example: String,
}

/// All of them.
pub(crate) fn all() -> Vec<Documented> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for file in sources(&src) {
        let text = fs::read_to_string(&file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let module = file.strip_prefix(&src).unwrap().components().next().unwrap().as_os_str().to_string_lossy();
        let module = module.trim_end_matches(".rs");
        let mut add = |of, name, attrs: &[Attribute]| {
            found.push(Documented { module: module.to_owned(), of, name, example: example(attrs) });
        };
        add(None, String::new(), &parsed.attrs);
        parsed.items.iter().for_each(|item| read(item, &mut add));
    }
    found
}

/// Every source file, but those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_test = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let below = folders.into_iter().filter(|path| !is_test(path)).flat_map(|folder| sources(&folder));
    files.filter(|path| !is_test(path)).chain(below).collect()
}

/// Adds what an item has that is public.
fn read(item: &Item, add: &mut impl FnMut(Option<String>, String, &[Attribute])) {
    let mut public = |vis: &Visibility, name: &Ident, of: Option<String>, attrs: &[Attribute]| {
        if matches!(vis, Visibility::Public(_)) {
            add(of, name.to_string(), attrs);
        }
    };
    match item {
        Item::Struct(item) => public(&item.vis, &item.ident, None, &item.attrs),
        Item::Enum(item) => public(&item.vis, &item.ident, None, &item.attrs),
        Item::Trait(item) => public(&item.vis, &item.ident, None, &item.attrs),
        Item::Fn(item) => public(&item.vis, &item.sig.ident, None, &item.attrs),
        Item::Impl(item) if item.trait_.is_none() => {
            let Type::Path(of) = &*item.self_ty else { return };
            let of = of.path.segments.last().map(|segment| segment.ident.to_string());
            for method in &item.items {
                if let ImplItem::Fn(method) = method {
                    public(&method.vis, &method.sig.ident, of.clone(), &method.attrs);
                }
            }
        }
        _ => {}
    }
}

/// What stands in the fences of these docs, but for those that are no Rust.
fn example(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let docs = lines.collect::<Vec<_>>().join("\n");
    let fences = docs.split("```").skip(1).step_by(2);
    fences.filter(|fence| !fence.starts_with("text")).collect()
}
