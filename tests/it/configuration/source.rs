//! What the source says about the configuration: its types, their fields, and the comments on them.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of Rust's grammar only what a configuration needs is meant"
)]

use std::collections::BTreeMap;
use std::path::Path;
use syn::{Attribute, Expr, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// The files whose types are keys or values of keys, each with the module that `crate::MODULE::Type` names.
const FILES: [(&str, &str); 8] = [
    ("src/config/settings.rs", ""),
    ("src/config/maintenance/mod.rs", ""),
    ("src/drain/others/mod.rs", ""),
    ("src/drain/policy.rs", ""),
    ("src/drain/hooks.rs", ""),
    ("src/drain/ways.rs", ""),
    ("src/cluster/timing.rs", "cluster"),
    ("src/host/timing.rs", "host"),
];

/// A type as it is written.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// `cluster` of `crate::cluster::Timing`, else empty.
    pub(super) module: String,
    /// Its last word.
    pub(super) name: String,
    /// What stands between `<` and `>`.
    pub(super) inner: Vec<Self>,
}

/// A field of a table.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) doc: Vec<String>,
    pub(super) shape: Shape,
    /// What stands in `#[serde(…)]`.
    pub(super) serde: String,
}

/// A type that is a table in a file.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) doc: Vec<String>,
    pub(super) fields: Vec<Field>,
    /// Every field may be absent.
    pub(super) optional: bool,
}

/// One word of a choice.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) doc: Vec<String>,
    /// The one that holds when nothing is said.
    pub(super) usual: bool,
}

/// All types of the files.
#[derive(Debug, Default)]
pub(super) struct Types {
    tables: BTreeMap<(String, String), Table>,
    choices: BTreeMap<(String, String), Vec<Word>>,
}

impl Types {
    /// Reads the files of the package in `root`.
    pub(super) fn read(root: &Path) -> Self {
        let mut types = Self::default();
        for (file, module) in FILES {
            let text = match std::fs::read_to_string(root.join(file)) {
                Ok(text) => text,
                Err(why) => panic!("{file}: {why}"),
            };
            types.add(module, &text);
        }
        types
    }

    /// Adds the types of one file.
    pub(super) fn add(&mut self, module: &str, text: &str) {
        let file = match syn::parse_file(text) {
            Ok(file) => file,
            Err(why) => panic!("a file of {module} is not Rust: {why}"),
        };
        for item in file.items {
            match item {
                Item::Struct(it) => {
                    let fields = it.fields.iter().filter_map(field).collect();
                    let table = Table {
                        doc: doc(&it.attrs),
                        fields,
                        optional: serde(&it.attrs).contains("default"),
                    };
                    let key = (module.to_owned(), it.ident.to_string());
                    self.tables.insert(key, table);
                }
                Item::Enum(it) if serde(&it.attrs).contains("kebab-case") => {
                    let words = it.variants.iter().map(|variant| Word {
                        text: kebab(&variant.ident.to_string()),
                        doc: doc(&variant.attrs),
                        usual: variant.attrs.iter().any(|a| a.path().is_ident("default")),
                    });
                    let key = (module.to_owned(), it.ident.to_string());
                    self.choices.insert(key, words.collect());
                }
                _ => {}
            }
        }
    }

    /// The table that a type is.
    pub(super) fn table(&self, shape: &Shape) -> Option<&Table> {
        let key = (shape.module.clone(), shape.name.clone());
        // A text in the file, whatever it is in the program.
        self.tables.get(&key).filter(|table| {
            !table.fields.is_empty() && !["Selector", "Glob"].contains(&shape.name.as_str())
        })
    }

    /// The words that a type is one of.
    pub(super) fn words(&self, shape: &Shape) -> Option<&[Word]> {
        let key = (shape.module.clone(), shape.name.clone());
        self.choices.get(&key).map(Vec::as_slice)
    }
}

fn field(field: &syn::Field) -> Option<Field> {
    Some(Field {
        name: field.ident.as_ref()?.to_string(),
        doc: doc(&field.attrs),
        shape: shape(&field.ty),
        serde: serde(&field.attrs),
    })
}

/// The lines of the comment, without the blank that stands before each.
fn doc(attrs: &[Attribute]) -> Vec<String> {
    let line = |attr: &Attribute| match &attr.meta {
        Meta::NameValue(it) if it.path.is_ident("doc") => match &it.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let lines = attrs.iter().filter_map(line);
    lines
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned())
        .collect()
}

/// What stands in all `#[serde(…)]` together.
fn serde(attrs: &[Attribute]) -> String {
    let inside = |attr: &Attribute| match &attr.meta {
        Meta::List(list) if list.path.is_ident("serde") => Some(list.tokens.to_string()),
        _ => None,
    };
    attrs
        .iter()
        .filter_map(inside)
        .collect::<Vec<_>>()
        .join(", ")
}

fn shape(of: &Type) -> Shape {
    let segments: Vec<_> = match of {
        Type::Path(path) => path.path.segments.iter().collect(),
        _ => Vec::new(),
    };
    let absolute = segments.len() == 3 && segments[0].ident == "crate";
    let Some(last) = segments.last() else {
        // A reference or the like; no key has such a type.
        return Shape {
            module: String::new(),
            name: "nameless type".to_owned(),
            inner: Vec::new(),
        };
    };
    let inner = match &last.arguments {
        PathArguments::AngleBracketed(list) => list
            .args
            .iter()
            .filter_map(|arg| match arg {
                GenericArgument::Type(inner) => Some(shape(inner)),
                _ => None,
            })
            .collect(),
        PathArguments::None | PathArguments::Parenthesized(_) => Vec::new(),
    };
    Shape {
        module: if absolute {
            segments[1].ident.to_string()
        } else {
            String::new()
        },
        name: last.ident.to_string(),
        inner,
    }
}

/// `ShutdownVms` as `shutdown-vms`, which is what serde makes of it.
fn kebab(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && at > 0 {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
