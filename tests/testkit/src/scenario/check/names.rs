//! Which VMs, nodes, pods and budgets does the story know so far?

use std::collections::BTreeSet;

use super::super::problem::{Problem, Source};
use super::super::world::{Pdb, Pod};

/// (namespace, name)
type Key = (String, String);

/// All names, collected while the file is walked in its order of time.
pub(super) struct Names<'a> {
    source: Source<'a>,
    host: String,
    nodes: BTreeSet<String>,
    vms: BTreeSet<Key>,
    pods: BTreeSet<Key>,
    pdbs: BTreeSet<Key>,
    saved: BTreeSet<String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self {
            source,
            host: String::new(),
            nodes: BTreeSet::new(),
            vms: BTreeSet::new(),
            pods: BTreeSet::new(),
            pdbs: BTreeSet::new(),
            saved: BTreeSet::new(),
        }
    }

    pub(super) fn host(&mut self, node: &str) {
        node.clone_into(&mut self.host);
    }

    pub(super) fn add_node(&mut self, node: &str, line: usize) -> Result<(), Problem> {
        self.fresh(self.nodes.contains(node), "node", node, line)?;
        self.nodes.insert(node.into());
        Ok(())
    }

    pub(super) fn add_vm(&mut self, space: &str, name: &str, line: usize) -> Result<(), Problem> {
        let key = (space.to_owned(), name.to_owned());
        self.fresh(self.vms.contains(&key), "vm", name, line)?;
        self.vms.insert(key);
        Ok(())
    }

    pub(super) fn add_pod(&mut self, pod: &Pod, line: usize) -> Result<(), Problem> {
        let key = (pod.namespace.clone(), pod.name.clone());
        self.fresh(self.pods.contains(&key), "pod", &pod.name, line)?;
        self.pods.insert(key);
        Ok(())
    }

    pub(super) fn add_pdb(&mut self, pdb: &Pdb, line: usize) -> Result<(), Problem> {
        let key = (pdb.namespace.clone(), pdb.name.clone());
        self.fresh(self.pdbs.contains(&key), "pdb", &pdb.name, line)?;
        self.pdbs.insert(key);
        Ok(())
    }

    fn fresh(&self, taken: bool, what: &str, name: &str, line: usize) -> Result<(), Problem> {
        if taken {
            let text = format!("there are two of {what} `{name}`");
            return Err(self.source.problem_at(line, text));
        }
        Ok(())
    }

    /// A node that the story knows, or none given.
    pub(super) fn node(&self, node: Option<&str>, line: usize) -> Result<(), Problem> {
        match node {
            Some(node) if node != self.host && !self.nodes.contains(node) => {
                let known: Vec<&str> = std::iter::once(self.host.as_str())
                    .chain(self.nodes.iter().map(String::as_str))
                    .collect();
                let text = format!("there is no node `{node}`, only {}", known.join(", "));
                Err(self.source.problem_at(line, text))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn vm(&self, ns: Option<&str>, name: &str, line: usize) -> Result<(), Problem> {
        self.find(&self.vms, "vm", ns, name, line)
    }

    pub(super) fn pdb(&self, ns: Option<&str>, name: &str, line: usize) -> Result<(), Problem> {
        self.find(&self.pdbs, "pdb", ns, name, line)
    }

    /// Pods are also made by the cluster itself (launchers), so any name may be meant; a stem is enough for those.
    pub(super) fn pod(&self, ns: Option<&str>, name: &str, line: usize) -> Result<(), Problem> {
        if name.starts_with("virt-launcher-") || name.starts_with("hp-volume-") {
            return Ok(());
        }
        self.find(&self.pods, "pod", ns, name, line)
    }

    /// Remembers the name of a saved result; false when it is taken.
    pub(super) fn save(&mut self, name: &str) -> bool {
        self.saved.insert(name.into())
    }

    pub(super) fn saved(&self, name: &str, line: usize) -> Result<(), Problem> {
        if self.saved.contains(name) {
            return Ok(());
        }
        let text = format!("no event saves its result as `{name}`");
        Err(self.source.problem_at(line, text))
    }

    fn find(
        &self,
        among: &BTreeSet<Key>,
        what: &str,
        ns: Option<&str>,
        name: &str,
        line: usize,
    ) -> Result<(), Problem> {
        let fits = |key: &&Key| key.1 == name && ns.is_none_or(|ns| ns == key.0);
        let text = match among.iter().filter(fits).count() {
            1 => return Ok(()),
            0 => format!("there is no {what} `{name}` at that time"),
            _ => format!("there are several of {what} `{name}`: give its `namespace`"),
        };
        Err(self.source.problem_at(line, text))
    }
}
