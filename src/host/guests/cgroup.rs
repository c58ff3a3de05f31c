//! To which pod does a process belong, by its cgroup?
//!
//! ```text
//! systemd driver   …/kubepods-burstable-pod1f5c…_….slice/cri-containerd-<id>.scope
//! cgroupfs driver  …/kubepods/burstable/pod1f5c…-…/<id>
//! ```

/// UID of the pod whose container has this `/proc/<pid>/cgroup`; `None`: none.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        // hierarchy:controllers:path, and a path may have colons of its own.
        let path = line.splitn(3, ':').nth(2)?;
        let parts: Vec<&str> = path.split('/').collect();
        let at = parts.iter().position(|part| uid_of(part).is_some())?;
        // The pod's own cgroup has no process of a container.
        let in_container = parts.get(at + 1).is_some_and(|part| !part.is_empty());
        let of_kubelet = parts
            .iter()
            .take(at + 1)
            .any(|part| part.contains("kubepods"));
        parts
            .get(at)
            .filter(|_| in_container && of_kubelet)
            .and_then(|part| uid_of(part))
    })
}

/// The UID in the name of a pod's cgroup.
fn uid_of(part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        // systemd reads a dash in the name of a slice as a step down.
        Some(slice) => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        None => part.strip_prefix("pod")?.to_owned(),
    };
    let lengths = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = uid.split('-').collect();
    let form = groups.len() == lengths.len()
        && groups.iter().zip(lengths).all(|(group, length)| {
            group.len() == length && group.bytes().all(|b| b.is_ascii_hexdigit())
        });
    form.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "1f5c0c2e-9d0b-4c56-8a7e-0d6b2f3a4b5c";

    #[test]
    fn both_drivers_and_both_versions_of_cgroups_are_read() {
        let slice = UID.replace('-', "_");
        let yes = [
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-ab12.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice/crio-ab12.scope\n"),
            format!("0::/kubepods/besteffort/pod{UID}/ab12\n"),
            format!("0::/kubepods/pod{UID}/ab12/sub\n"),
            // Version 1, and both at once.
            format!(
                "12:memory:/kubepods/burstable/pod{UID}/ab12\n0::/system.slice/containerd.service\n"
            ),
            format!(
                "1:name=systemd:/host/kubepods.slice/kubepods-pod{slice}.slice/docker-ab12.scope\n0::/\n"
            ),
            // A controller's name may be empty, and a path have colons.
            format!("0::/a:b/kubepods/pod{UID}/cri:ab12\n"),
        ];
        for text in yes {
            assert_eq!(pod_uid(&text).as_deref(), Some(UID), "{text}");
        }
    }

    #[test]
    fn what_is_no_container_of_a_pod_is_none() {
        let slice = UID.replace('-', "_");
        let no = [
            String::new(),
            "0::/system.slice/sshd.service\n".into(),
            format!("0::/kubepods/pod{UID}\n"),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice\n"),
            // A static pod's UID is a hash: no launcher pod is static.
            "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ab12\n".into(),
            format!("0::/user.slice/pod{UID}/ab12\n"),
            "nonsense\n".into(),
        ];
        for text in no {
            assert_eq!(pod_uid(&text), None, "{text}");
        }
    }
}
