//! Which policy applies to a VM: what its owner has written on it, else the first rule that matches, else the default.
//!
//! `drain.skip` comes before all of them: what an administrator keeps out of drains stays out.

use super::policy::{opt_seconds, seconds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The annotation with a policy's word, on the template of a VM (so on its VMI and launcher pod) or on the VM itself.
pub const POLICY_ANNOTATION: &str = "vmdrain.io/policy";
/// The annotation with the longest time that a drain waits for this VM, a duration such as `5m`.
pub const DEADLINE_ANNOTATION: &str = "vmdrain.io/deadline";

/// What a drain does with a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// What KubeVirt makes of an eviction: a live migration wherever the VM allows it.
    #[default]
    Migrate,
    /// A clean guest shutdown, no migration.
    Shutdown,
    /// The same, and started on another node at once.
    Restart,
    /// Neither moved nor stopped.
    Leave,
}

impl Way {
    /// The word of annotations, rules and `status`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Shutdown => "shutdown",
            Self::Restart => "restart",
            Self::Leave => "leave",
        }
    }

    /// Reads such a word.
    ///
    /// # Errors
    /// A sentence that names the words that there are.
    pub fn read(text: &str) -> Result<Self, String> {
        let all = [Self::Migrate, Self::Shutdown, Self::Restart, Self::Leave];
        let word = text.trim();
        let found = all.into_iter().find(|way| way.word() == word);
        found.ok_or_else(|| format!("'{text}' is none of migrate, shutdown, restart, leave"))
    }
}

/// A text to compare with: exact, or with `*` for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(pub String);

impl Glob {
    /// The whole text fits.
    pub fn fits(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.split_once(part) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// `[[policy.rule]]`: VMs that match everything that is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Namespace, exact or with `*`; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Glob>,
    /// Name of the VM, exact or with `*`; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Glob>,
    /// Labels of the launcher pod, which has all those of the VM's template; values exact or with `*`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Glob>,
    /// What happens to these VMs, a word as for `policy.default`; absent: the default, and the rule only sets a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Way>,
    /// The longest time that a drain waits for each of them.
    #[serde(with = "opt_seconds", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
}

impl Rule {
    /// What makes the rule useless, as a sentence.
    pub fn trouble(&self) -> Option<String> {
        if self.namespace.is_none() && self.name.is_none() && self.labels.is_empty() {
            return Some(
                "selects every VM: give it a namespace, a name or labels, or set policy.default"
                    .into(),
            );
        }
        (self.policy.is_none() && self.deadline.is_none())
            .then(|| "says nothing: give it a policy or a deadline".into())
    }

    fn fits(&self, vm: &Candidate<'_>) -> bool {
        let of = |glob: &Option<Glob>, text| glob.as_ref().is_none_or(|glob| glob.fits(text));
        let label =
            |(key, glob): (&String, &Glob)| vm.labels.get(key).is_some_and(|v| glob.fits(v));
        of(&self.namespace, vm.namespace)
            && of(&self.name, vm.name)
            && self.labels.iter().all(label)
    }
}

/// A label selector of `drain.skip`, as kubectl writes them: `app=db`, `app!=db`, `app`, `!app`, joined by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

impl Selector {
    /// Every term holds for these labels.
    pub fn fits(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Is(key, value) => labels.get(key) == Some(value),
            Term::IsNot(key, value) => labels.get(key) != Some(value),
            Term::Has(key) => labels.contains_key(key),
            Term::HasNot(key) => !labels.contains_key(key),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.text
    }
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let terms = text.split(',').map(term).collect::<Option<Vec<_>>>();
        match terms {
            Some(terms) => Ok(Self { text, terms }),
            None => Err(format!(
                "'{text}' is not a label selector such as app=db, app!=db, app or !app, joined by commas"
            )),
        }
    }
}

fn term(text: &str) -> Option<Term> {
    let part = |text: &str| {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        text.chars().all(plain).then(|| text.to_owned())
    };
    let key = |text: &str| part(text).filter(|key| !key.is_empty());
    if let Some((left, right)) = text.split_once("!=") {
        return Some(Term::IsNot(key(left)?, part(right)?));
    }
    if let Some((left, right)) = text.split_once('=') {
        let right = right.strip_prefix('=').unwrap_or(right);
        return Some(Term::Is(key(left)?, part(right)?));
    }
    match text.trim().strip_prefix('!') {
        Some(rest) => Some(Term::HasNot(key(rest)?)),
        None => Some(Term::Has(key(text)?)),
    }
}

/// What the configuration says about VMs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ways {
    /// `policy.default`.
    pub default: Way,
    /// `policy.rule`, the first that matches counts.
    pub rules: Vec<Rule>,
    /// `drain.skip`.
    pub skip: Vec<Selector>,
}

/// What is known of a VM when its policy is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Labels of its launcher pod.
    pub labels: &'a BTreeMap<String, String>,
    /// [`POLICY_ANNOTATION`] of the VM itself, and of its pod.
    pub policy: [Option<&'a str>; 2],
    /// [`DEADLINE_ANNOTATION`] of the VM itself, and of its pod.
    pub deadline: [Option<&'a str>; 2],
}

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// `policy.default`.
    #[default]
    Default,
    /// `policy.rule`, counted from 1.
    Rule(usize),
    /// The VM's annotation.
    Annotation,
    /// `drain.skip`.
    Skip,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("policy.default"),
            Self::Rule(number) => write!(f, "policy.rule {number}"),
            Self::Annotation => write!(f, "annotation {POLICY_ANNOTATION}"),
            Self::Skip => f.write_str("drain.skip"),
        }
    }
}

/// The policy of one VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// What happens to it.
    pub way: Way,
    /// Who says so.
    pub source: Source,
    /// The longest time that a drain waits for it.
    pub deadline: Option<Duration>,
    /// What is wrong with its annotations, as sentences; what applies instead is above.
    pub troubles: Vec<String>,
}

impl Ways {
    /// The policy of a VM.
    pub fn choose(&self, vm: &Candidate<'_>) -> Choice {
        let mut troubles = Vec::new();
        let said = first(vm.policy, POLICY_ANNOTATION, Way::read, &mut troubles);
        let span = first(
            vm.deadline,
            DEADLINE_ANNOTATION,
            seconds::parse,
            &mut troubles,
        );
        let of_rule = self
            .rules
            .iter()
            .enumerate()
            .find(|(_, rule)| rule.fits(vm));
        let (way, source) = if self.skip.iter().any(|skip| skip.fits(vm.labels)) {
            (Way::Leave, Source::Skip)
        } else if let Some(way) = said {
            (way, Source::Annotation)
        } else if let Some((at, way)) = of_rule.and_then(|(at, rule)| Some((at, rule.policy?))) {
            (way, Source::Rule(at + 1))
        } else {
            (self.default, Source::Default)
        };
        if !troubles.is_empty() {
            troubles.push(format!("{} ({source}) applies", way.word()));
        }
        Choice {
            way,
            source,
            deadline: span.or_else(|| of_rule.and_then(|(_, rule)| rule.deadline)),
            troubles,
        }
    }
}

/// The first annotation that is there and can be read.
fn first<T>(
    texts: [Option<&str>; 2],
    name: &str,
    read: impl Fn(&str) -> Result<T, String>,
    troubles: &mut Vec<String>,
) -> Option<T> {
    for text in texts.into_iter().flatten() {
        match read(text) {
            Ok(value) => return Some(value),
            Err(why) => {
                let text = format!("annotation {name}: {why}");
                if !troubles.contains(&text) {
                    troubles.push(text);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(labels: &BTreeMap<String, String>) -> Candidate<'_> {
        Candidate {
            namespace: "shop",
            name: "db-0",
            labels,
            policy: [None, None],
            deadline: [None, None],
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn rule(name: &str, way: Way) -> Rule {
        Rule {
            name: Some(Glob(name.into())),
            policy: Some(way),
            ..Rule::default()
        }
    }

    #[test]
    fn globs() {
        for (glob, text, fits) in [
            ("db-0", "db-0", true),
            ("db-0", "db-01", false),
            ("db-*", "db-01", true),
            ("*-0", "db-0", true),
            ("*", "", true),
            ("d*b*0", "d-b-0", true),
            ("a*a", "a", false),
            ("a*b*b", "ab", false),
        ] {
            assert_eq!(Glob(glob.into()).fits(text), fits, "{glob} {text}");
        }
    }

    #[test]
    fn selectors_as_kubectl_writes_them() {
        let of = |text: &str| Selector::try_from(text.to_owned());
        let labels = labels(&[("app", "db"), ("vmdrain.io/keep", "")]);
        for (text, fits) in [
            ("app=db", true),
            ("app==db", true),
            ("app!=db", false),
            ("other!=db", true),
            ("vmdrain.io/keep", true),
            ("!vmdrain.io/keep", false),
            ("app=db,!other", true),
            ("app=db, other", false),
        ] {
            assert_eq!(of(text).map(|s| s.fits(&labels)), Ok(fits), "{text}");
        }
        for bad in ["", "=db", "a b", "app in (db)", "app=db,"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_decides() {
        let labels = labels(&[("app", "db")]);
        let mut ways = Ways {
            default: Way::Migrate,
            rules: vec![
                rule("web-*", Way::Leave),
                rule("db-*", Way::Shutdown),
                rule("*", Way::Leave),
            ],
            skip: Vec::new(),
        };
        let mut vm = candidate(&labels);
        let chosen = |ways: &Ways, vm: &Candidate<'_>| {
            let choice = ways.choose(vm);
            (choice.way, choice.source)
        };
        assert_eq!(chosen(&ways, &vm), (Way::Shutdown, Source::Rule(2)));
        vm.policy = [None, Some("restart")];
        assert_eq!(chosen(&ways, &vm), (Way::Restart, Source::Annotation));
        vm.policy = [Some("migrate"), Some("restart")];
        assert_eq!(chosen(&ways, &vm), (Way::Migrate, Source::Annotation));
        ways.skip = vec![Selector::try_from("app=db".to_owned()).unwrap()];
        assert_eq!(chosen(&ways, &vm), (Way::Leave, Source::Skip));
        ways = Ways::default();
        vm.policy = [None, None];
        assert_eq!(chosen(&ways, &vm), (Way::Migrate, Source::Default));
    }

    #[test]
    fn a_bad_annotation_is_told_and_the_next_best_applies() {
        let labels = BTreeMap::new();
        let ways = Ways {
            rules: vec![rule("db-*", Way::Shutdown)],
            ..Ways::default()
        };
        let mut vm = candidate(&labels);
        vm.policy = [None, Some("stop")];
        vm.deadline = [Some("soon"), Some("5m")];
        let choice = ways.choose(&vm);
        assert_eq!(choice.way, Way::Shutdown);
        assert_eq!(choice.deadline, Some(Duration::from_secs(300)));
        assert_eq!(
            choice.troubles,
            [
                "annotation vmdrain.io/policy: 'stop' is none of migrate, shutdown, restart, leave",
                "annotation vmdrain.io/deadline: 'soon' is not a duration such as 90s, 5m or 1h30m",
                "shutdown (policy.rule 1) applies",
            ]
        );
    }

    #[test]
    fn rules_that_select_or_say_nothing() {
        assert!(Rule::default().trouble().is_some());
        assert!(rule("x", Way::Leave).trouble().is_none());
        let silent = Rule {
            name: Some(Glob("x".into())),
            ..Rule::default()
        };
        assert!(silent.trouble().is_some());
    }
}
