//! What is there when a case begins: the cluster's story, logind's limit, the agent's configuration, files.

use std::time::Duration;

/// What is there when a case begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The cluster, as the tables of a scenario.
    pub(crate) story: String,
    /// `InhibitDelayMaxSec` as it is written into logind's configuration.
    pub(crate) limit: String,
    /// The agent's configuration.
    pub(crate) config: String,
    /// Further files: path and content.
    pub(crate) files: Vec<(String, String)>,
    /// Symlinks: path and target.
    pub(crate) links: Vec<(String, String)>,
    /// A command that is run on the disk before the first boot.
    pub(crate) before: Option<String>,
    /// The agent is expected to hold the host after the boot.
    pub(crate) held: bool,
}

impl Plan {
    /// Two VMs that need about `seconds` to move, both at a time, and logind waits 40 s.
    pub(crate) fn moving(seconds: f64) -> Self {
        // Besides the copying, a migration of the played cluster takes about 2.6 s.
        let copying = Duration::from_secs_f64((seconds - 2.6).max(0.1)).as_millis();
        Self {
            story: vms(&format!("count = 2\nmigration_time = \"{copying}ms\"")),
            limit: "40".into(),
            config: "[budget]\nmargin = \"1s\"\n".into(),
            files: Vec::new(),
            links: Vec::new(),
            before: None,
            held: true,
        }
    }

    /// With another limit of logind's.
    pub(crate) fn limit(mut self, limit: &str) -> Self {
        limit.clone_into(&mut self.limit);
        self
    }

    /// With another file on the host.
    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// With another symlink on the host.
    pub(crate) fn link(mut self, path: &str, target: &str) -> Self {
        self.links.push((path.to_owned(), target.to_owned()));
        self
    }

    /// With more configuration of the agent.
    pub(crate) fn config(mut self, more: &str) -> Self {
        self.config.push_str(more);
        self
    }
}

/// A story with one kind of VM: small, and soon shut down, so that in the short limits of these cases there is time to move it.
pub(crate) fn vms(keys: &str) -> String {
    let memory = if keys.contains("memory") {
        ""
    } else {
        "memory = \"1Gi\"\n"
    };
    format!(
        "name = \"hosts\"\n[[node]]\nname = \"n2\"\n[[vm]]\nname = \"db\"\nstart_up = \"300ms\"\nsource_pod_lingers = \"100ms\"\ngrace_period = \"3s\"\nguest_shutdown = \"1s\"\n{memory}{keys}\n"
    )
}

/// A service that stands for another one of a Kubernetes host.
pub(crate) fn stand_in(description: &str) -> String {
    format!(
        "[Unit]\nDescription={description}\n[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    )
}
