//! `rbac`: which rights can the cluster's administrator add, and with which manifests? They are those of `packaging/rbac`.

use super::exit::Exit;
use super::failure::Failure;
use super::look::pad;
use super::screen::Screen;
use clap::ValueEnum;

/// A part of the manifests. Its name is that of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// See VMIs, migrations, VMs, the KubeVirt object and disruption budgets (cluster-wide)
    Reads,
    /// Confine what the other parts open to the caller's own node
    OwnNodePolicy,
    /// Clear marks when a drain is cancelled (past admission: marks of every node)
    Cancel,
    /// End migrations under way with `cancel --abort-migrations`
    Abort,
    /// Start VMs again that a drain has shut down (past admission: any stopped VM)
    Start,
    /// See all Nodes
    Nodes,
    /// See which volumes are attached (cluster-wide), for gates.volume_attachments
    Volumes,
    /// See why a migration's target pod finds no node (specs of all pods of the cluster)
    Targets,
    /// An identity of its own for each node's agent instead of the kubelet's
    ServiceAccount,
}

/// What is printed when nothing is named: what `kubectl apply -k` would take.
const USUAL: [Part; 2] = [Part::Reads, Part::OwnNodePolicy];

macro_rules! manifest {
    ($name:literal) => {
        (
            concat!($name, ".yaml"),
            include_str!(concat!("../../packaging/rbac/", $name, ".yaml")),
        )
    };
}

impl Part {
    /// Name and text of its file.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Reads => manifest!("reads"),
            Self::OwnNodePolicy => manifest!("own-node-policy"),
            Self::Cancel => manifest!("cancel"),
            Self::Abort => manifest!("abort"),
            Self::Start => manifest!("start"),
            Self::Nodes => manifest!("nodes"),
            Self::Volumes => manifest!("volumes"),
            Self::Targets => manifest!("targets"),
            Self::ServiceAccount => manifest!("service-account"),
        }
    }

    /// Without the policy this part would open other nodes' objects.
    fn needs_policy(self) -> bool {
        matches!(self, Self::Abort | Self::ServiceAccount)
    }
}

/// Prints the parts as one YAML stream, each once; nothing named: reads and policy. A part that must not be there without the policy
/// brings it along.
///
/// # Errors
/// When it cannot be written.
pub(super) fn print(named: &[Part], screen: &mut Screen) -> Result<Exit, Failure> {
    let documents: Vec<String> = chosen(named)
        .into_iter()
        .map(|part| {
            let (file, text) = part.file();
            format!("# {file}\n{}", text.trim_end())
        })
        .collect();
    screen.line(&documents.join("\n---\n"))?;
    Ok(Exit::Done)
}

fn chosen(named: &[Part]) -> Vec<Part> {
    let mut parts = if named.is_empty() {
        USUAL.to_vec()
    } else {
        named.to_vec()
    };
    if parts.iter().any(|part| part.needs_policy()) {
        parts.push(Part::OwnNodePolicy);
    }
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// Prints what there is to choose from.
///
/// # Errors
/// When it cannot be written.
pub(super) fn list(screen: &mut Screen) -> Result<Exit, Failure> {
    let values = Part::value_variants().iter().filter_map(|part| {
        let value = part.to_possible_value()?;
        let name = value.get_name().to_owned();
        let mut about = value.get_help().map(ToString::to_string)?;
        if USUAL.contains(part) {
            about.push_str(" [printed when nothing is named]");
        }
        if part.needs_policy() {
            about.push_str(" [brings own-node-policy along]");
        }
        Some((name, about))
    });
    let values: Vec<(String, String)> = values.collect();
    let width = values.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in values {
        screen.line(&format!("{}  {about}", pad(&name, width)))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_parts_are_those_of_kustomize() {
        let kustomization = include_str!("../../packaging/rbac/kustomization.yaml");
        let taken: Vec<&str> = kustomization
            .lines()
            .filter_map(|line| line.strip_prefix("  - "))
            .collect();
        let usual: Vec<&str> = chosen(&[]).iter().map(|part| part.file().0).collect();
        assert_eq!(usual, taken);
        // And it names every other one, for whoever wants it.
        for part in Part::value_variants() {
            assert!(kustomization.contains(part.file().0), "{part:?}");
        }
    }

    #[test]
    fn a_part_is_named_as_its_file() {
        for part in Part::value_variants() {
            let name = part.to_possible_value().unwrap();
            assert_eq!(format!("{}.yaml", name.get_name()), part.file().0);
        }
    }

    #[test]
    fn what_would_be_open_without_the_policy_brings_it_along() {
        use Part::{Abort, Cancel, OwnNodePolicy, Reads, ServiceAccount};
        assert_eq!(chosen(&[Abort]), [OwnNodePolicy, Abort]);
        assert_eq!(
            chosen(&[ServiceAccount, Reads]),
            [Reads, OwnNodePolicy, ServiceAccount]
        );
        assert_eq!(chosen(&[Cancel, Cancel]), [Cancel]);
    }
}
