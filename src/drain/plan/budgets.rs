//! One row per disruption budget over the launcher pods of this node.

use super::vms::Row;
use super::{PlanBudget, PlanCure, Survey};
use crate::drain::budgets::{Class, cure, diagnose, sentence};
use crate::drain::world::PdbView;

/// The rows, in the order of their names; KubeVirt's own budgets are nobody's business.
pub(super) fn rows(survey: &Survey, vms: &[Row<'_>]) -> Vec<PlanBudget> {
    let mut rows: Vec<PlanBudget> = survey
        .picture
        .pdbs
        .seen()
        .into_iter()
        .flatten()
        .filter(|pdb| !pdb.kubevirts_own)
        .map(|pdb| row(pdb, survey, vms))
        .collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    rows
}

/// `needs 3 healthy pods and has 3`, of what its status says.
pub(super) fn counts(pdb: &PdbView) -> String {
    format!(
        "{}: needs {} healthy pods and has {} of {}",
        pdb.rule, pdb.desired_healthy, pdb.current_healthy, pdb.expected
    )
}

fn row(pdb: &PdbView, survey: &Survey, vms: &[Row<'_>]) -> PlanBudget {
    let picture = &survey.picture;
    let pods = picture.pods.seen().map_or(&[][..], Vec::as_slice);
    let vmis = picture.vmis.seen().map_or(&[][..], Vec::as_slice);
    let class = diagnose(pdb, pods, vmis);
    let covered = survey.covered.get(&pdb.pdb.to_string()).copied();
    let cure = matches!(class, Class::NeverSatisfiable { .. })
        .then(|| cure(pdb, covered))
        .flatten();
    let same = |row: &&Row<'_>| row.pdbs.iter().any(|other| other.pdb == pdb.pdb);
    let asked = vms.iter().filter(|row| row.asks_budgets).filter(same);
    let stopped = asked
        .clone()
        .filter(|row| class != Class::Allows || row.pdbs.len() > 1);
    let mut with: Vec<String> = vms
        .iter()
        .filter(same)
        .flat_map(|row| &row.pdbs)
        .filter(|other| other.pdb != pdb.pdb)
        .map(|other| other.pdb.name.clone())
        .collect();
    with.sort_unstable();
    with.dedup();
    let short = match &class {
        Class::WaitsForPeers { short } | Class::UnhealthyPeers { short } => short.clone(),
        Class::Allows | Class::NeverSatisfiable { .. } | Class::NoRoom | Class::Young => Vec::new(),
    };
    PlanBudget {
        namespace: pdb.pdb.namespace.clone(),
        name: pdb.pdb.name.clone(),
        rule: pdb.rule.to_string(),
        class: word(&class).into(),
        says: match &class {
            Class::Allows => format!(
                "allows {} of its pods to go now ({})",
                pdb.disruptions_allowed,
                counts(pdb)
            ),
            Class::NeverSatisfiable { .. }
            | Class::NoRoom
            | Class::WaitsForPeers { .. }
            | Class::UnhealthyPeers { .. }
            | Class::Young => sentence(&pdb.pdb.name, &counts(pdb), Some(&class)),
        },
        needs: pdb.desired_healthy,
        has: pdb.current_healthy,
        expected: pdb.expected,
        allowed: pdb.disruptions_allowed,
        since: pdb.since.clone(),
        short,
        stops: stopped
            .map(|row| format!("{}/{}", row.shown.namespace, row.shown.name))
            .collect(),
        with,
        cure: cure.map(|cure| PlanCure {
            min_available: cure.min_available,
            why: cure.why,
            manifest: cure.manifest,
        }),
    }
}

/// The word of the JSON.
fn word(class: &Class) -> &'static str {
    match class {
        Class::Allows => "allows",
        Class::NeverSatisfiable { .. } => "never_satisfiable",
        Class::NoRoom => "no_room",
        Class::WaitsForPeers { .. } => "waits_for_peers",
        Class::UnhealthyPeers { .. } => "unhealthy_peers",
        Class::Young => "young",
    }
}
