//! Which layers there are: files, environment, command line.

use super::error::{ConfigError, Problem};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What the variables of the environment begin with.
const PREFIX: &str = "VMDRAIN_";

/// Where to look. The default looks nowhere, which gives the packaged defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Directory that stands for `/`; `None`: no files of the host are read.
    pub root: Option<PathBuf>,
    /// This file alone instead of those under `root`.
    pub file: Option<PathBuf>,
    /// Texts of files that exist only in memory, as (name, TOML); they come after the files.
    pub texts: Vec<(String, String)>,
    /// The environment; only `VMDRAIN_SECTION__KEY` counts.
    pub environment: Vec<(String, String)>,
    /// Options of the command line, as `section.key=value`.
    pub options: Vec<String>,
}

/// One layer as it was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Layer {
    /// A file with its content.
    File {
        /// Its path, for people.
        name: String,
        /// TOML.
        text: String,
    },
    /// One variable.
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// One option of the command line.
    Assignment {
        /// `section.key`.
        key: String,
        /// Its value.
        value: String,
    },
}

impl Sources {
    /// The layers of this host with the environment of this process.
    ///
    /// `place`, when given, is a file to read instead of the files of the host, or a directory that
    /// stands for `/`.
    pub fn host(place: Option<&Path>, options: Vec<String>) -> Self {
        let utf8 = |text: OsString| text.into_string().ok();
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((utf8(name)?, utf8(value)?)))
            .collect();
        let (root, file) = match place {
            None => (Some(PathBuf::from("/")), None),
            Some(place) if place.is_dir() => (Some(place.to_owned()), None),
            Some(place) => (None, Some(place.to_owned())),
        };
        Self {
            root,
            file,
            texts: Vec::new(),
            environment,
            options,
        }
    }

    /// Reads all layers, lowest first.
    pub(super) fn layers(&self) -> Result<Vec<Layer>, ConfigError> {
        let mut problems = Vec::new();
        let mut layers = Vec::new();
        for path in self.files(&mut problems) {
            match read(&path) {
                Ok(text) => layers.push(Layer::File {
                    name: path.display().to_string(),
                    text,
                }),
                Err(problem) => problems.push(problem),
            }
        }
        layers.extend(self.texts.iter().map(|(name, text)| Layer::File {
            name: name.clone(),
            text: text.clone(),
        }));
        layers.extend(self.variables());
        for option in &self.options {
            match option.split_once('=') {
                Some((key, value)) if key.contains('.') => layers.push(Layer::Assignment {
                    key: key.trim().to_owned(),
                    value: value.trim().to_owned(),
                }),
                _ => problems.push(Problem {
                    origin: "--set".into(),
                    key: String::new(),
                    what: format!("'{option}' is not of the form section.key=value"),
                }),
            }
        }
        if problems.is_empty() {
            Ok(layers)
        } else {
            Err(ConfigError { problems })
        }
    }

    /// Variables named `VMDRAIN_…__…`. Others with that prefix are not ours to judge: hooks get some.
    fn variables(&self) -> impl Iterator<Item = Layer> {
        let mut ours: Vec<_> = self
            .environment
            .iter()
            .filter(|(name, _)| {
                name.strip_prefix(PREFIX)
                    .is_some_and(|rest| rest.contains("__"))
            })
            .cloned()
            .collect();
        ours.sort();
        ours.into_iter()
            .map(|(name, value)| Layer::Variable { name, value })
    }

    fn files(&self, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
        if let Some(file) = &self.file {
            return vec![file.clone()];
        }
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let mut files = Vec::new();
        let mut drop_ins = |at: &str| match list(&root.join(at)) {
            Ok(found) => found,
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        };
        files.extend(drop_ins("usr/lib/vmdrain-agent/config.d"));
        let main = root.join("etc/vmdrain-agent/config.toml");
        let rest = [
            drop_ins("etc/vmdrain-agent/config.d"),
            drop_ins("run/vmdrain-agent/config.d"),
        ];
        if std::fs::symlink_metadata(&main).is_ok() {
            files.push(main);
        }
        files.extend(rest.into_iter().flatten());
        files
    }
}

/// The `*.toml` of a directory in the order of their names; none when it does not exist.
fn list(directory: &Path) -> Result<Vec<PathBuf>, Problem> {
    let fault = |why: std::io::Error| Problem {
        origin: directory.display().to_string(),
        key: String::new(),
        what: format!("cannot be listed: {why}"),
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(fault(why)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(fault)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|end| end == "toml") && !hidden {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Far more than any configuration needs.
const LARGEST: u64 = 1 << 20;

fn read(path: &Path) -> Result<String, Problem> {
    let fault = |what: String| Problem {
        origin: path.display().to_string(),
        key: String::new(),
        what,
    };
    let unreadable = |why: std::io::Error| fault(format!("cannot be read: {why}"));
    // A pipe or a device could keep a reload, and with it the whole agent, waiting for ever.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if about.is_file() && about.len() > LARGEST {
        let size = about.len();
        return Err(fault(format!(
            "is {size} bytes long, which is no configuration"
        )));
    }
    if !about.is_file() && path != Path::new("/dev/null") {
        return Err(fault("is not a file".into()));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("directory");
        let pipe = folder.path().join("pipe.toml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        let large = folder.path().join("large.toml");
        let file = std::fs::File::create(&large).expect("file");
        file.set_len(LARGEST + 1).expect("size");
        for (path, why) in [
            (pipe.as_path(), "is not a file"),
            (Path::new("/dev/zero"), "is not a file"),
            (folder.path(), "is not a file"),
            (large.as_path(), "no configuration"),
        ] {
            let said = read(path).expect_err(why).what;
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(read(Path::new("/dev/null")).expect("nothing"), "");
    }
}
