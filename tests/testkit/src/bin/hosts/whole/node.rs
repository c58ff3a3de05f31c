//! What lies on the disk of a host with a real kubelet?

use std::time::Duration;

use serde_json::json;

use super::image::PAUSE;
use super::network::Network;
use super::plane::{LONG, Plane};
use crate::host::Host;
use crate::nspawn;

/// Where the program lies on the host.
pub(crate) const KUBELET: &str = "/usr/local/bin/kubelet";
/// Where containerd keeps everything; no overlay can be made on an overlay, so this is a folder of its own.
pub(crate) const CONTAINERD: &str = "/var/lib/containerd";
/// Where the kubelet keeps pods.
pub(crate) const PODS: &str = "/var/lib/kubelet/pods";
/// The knobs of the machine that a kubelet insists on. A host gets files in their place: they are not this machine's to change.
const KNOBS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];
/// The file of the certificate with which the kubelet begins.
pub(crate) const FIRST: &str = "kubelet-client-first.pem";
/// Where it keeps all of them; one name is a link to the newest.
const PKI: &str = "/var/lib/kubelet/pki";

/// What differs from case to case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kubelet {
    /// `shutdownGracePeriod`, zero for none, and what of it critical pods have.
    pub(crate) graceful: (Duration, Duration),
}

/// Writes everything.
pub(crate) fn lay_out(
    host: &Host,
    name: &str,
    kubelet: &Kubelet,
    network: &Network,
    plane: &Plane,
) -> anyhow::Result<()> {
    first(host)?;
    host.write(
        "/etc/hosts",
        &format!("127.0.0.1 localhost\n{} n1 {name}\n", network.address),
    )?;
    credentials(host, name, network, plane)?;
    host.write(
        "/etc/kubernetes/kubelet.yaml",
        &kubelet_config(kubelet).to_string(),
    )?;
    host.write(
        "/etc/cni/net.d/10-bridge.conflist",
        &bridge(network).to_string(),
    )?;
    host.write("/etc/containerd/config.toml", &containerd())?;
    host.write_mode("/opt/images/tests.tar", &plane.image, 0o644)?;
    unit(host, "images", IMAGES)?;
    unit(host, "kubelet", &kubelet_unit(name, network))?;
    host.link(
        "/etc/systemd/system/multi-user.target.wants/containerd.service",
        "/lib/systemd/system/containerd.service",
    )
}

/// PID 1 before it becomes systemd: what a container lacks of a machine.
fn first(host: &Host) -> anyhow::Result<()> {
    let mut binds = String::new();
    for (knob, value) in KNOBS {
        let file = format!("/etc/vmdrain-knobs/{}", knob.replace('/', "."));
        host.write(&file, &format!("{value}\n"))?;
        binds.push_str(&format!("mount --bind {file} /proc/sys/{knob}\n"));
    }
    let script = format!(
        "#!/bin/sh\n\
         # nspawn mounts the controllers of version 1 read-only.\n\
         for dir in /sys/fs/cgroup/*; do\n\
         [ -d $dir ] && [ ! -L $dir ] && {{ mount -o remount,rw,bind $dir || mount -o remount,rw $dir; }} 2>/dev/null\n\
         done\n\
         # A real reboot empties these trees; here they survive, and the kubelet would wait for each old container.\n\
         find /sys/fs/cgroup/ -mindepth 2 -depth -type d -exec rmdir {{}} + 2>/dev/null\n\
         mount --make-rshared /\n\
         {binds}\
         ln -sf null /dev/kmsg\n\
         exec /lib/systemd/systemd \"$@\"\n"
    );
    host.write_mode(nspawn::FIRST, script.as_bytes(), 0o755)
}

/// As kubeadm leaves them: a kubeconfig that names the file of the newest certificate.
fn credentials(host: &Host, name: &str, network: &Network, plane: &Plane) -> anyhow::Result<()> {
    certificate(host, name, LONG, plane)?;
    let newest = format!("{PKI}/kubelet-client-current.pem");
    host.link(&newest, &format!("{PKI}/{FIRST}"))?;
    let ca = "/etc/kubernetes/pki/ca.crt";
    host.write(ca, &plane.ca()?)?;
    let server = format!("https://{}:{}", network.gateway, plane.port);
    // JSON is YAML too. The server's certificate does not know the address at which a host reaches it.
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {
            "server": server, "tls-server-name": "localhost", "certificate-authority": ca,
        }}],
        "users": [{"name": "u", "user": {"client-certificate": newest, "client-key": newest}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    host.write_mode(
        "/etc/kubernetes/kubelet.conf",
        config.to_string().as_bytes(),
        0o600,
    )
}

/// Writes a certificate for the kubelet in the place of its first one.
pub(crate) fn certificate(
    host: &Host,
    name: &str,
    valid: Duration,
    plane: &Plane,
) -> anyhow::Result<()> {
    let pem = plane.certificate(name, valid)?;
    host.write_mode(&format!("{PKI}/{FIRST}"), pem.as_bytes(), 0o600)
}

fn kubelet_config(kubelet: &Kubelet) -> serde_json::Value {
    let (grace, critical) = kubelet.graceful;
    let seconds = |span: Duration| format!("{}s", span.as_secs());
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd", "failSwapOn": false, "failCgroupV1": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "rotateCertificates": true,
        // The disks of a container say nothing about a host's.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        "makeIPTablesUtilChains": false, "resolvConf": "/dev/null", "clusterDNS": ["198.18.0.10"],
        "shutdownGracePeriod": seconds(grace), "shutdownGracePeriodCriticalPods": seconds(critical),
        "nodeStatusUpdateFrequency": "4s", "syncFrequency": "10s",
    })
}

fn kubelet_unit(name: &str, network: &Network) -> String {
    format!(
        "[Unit]\nDescription=kubelet\nWants=network-online.target\nAfter=network-online.target containerd.service images.service\n\
         StartLimitIntervalSec=0\n\
         [Service]\n\
         ExecStart={KUBELET} --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
         --cert-dir={PKI} --hostname-override={name} --node-ip={} --v=2\n\
         Restart=always\nRestartSec=1\n\
         [Install]\nWantedBy=multi-user.target\n",
        network.address
    )
}

/// Nothing is ever pulled.
const IMAGES: &str = "[Unit]\nDescription=images of the tests\nRequires=containerd.service\nAfter=containerd.service\nBefore=kubelet.service\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=ctr --namespace k8s.io images import /opt/images/tests.tar\n\
    [Install]\nWantedBy=multi-user.target\n";

fn unit(host: &Host, name: &str, text: &str) -> anyhow::Result<()> {
    let place = format!("/etc/systemd/system/{name}.service");
    host.write(&place, text)?;
    let wants = format!("/etc/systemd/system/multi-user.target.wants/{name}.service");
    host.link(&wants, &place)
}

/// Without the right to lower an OOM score, and with systemd as the keeper of cgroups.
fn containerd() -> String {
    format!(
        "version = 2\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n\
         sandbox_image = \"{PAUSE}\"\n\
         restrict_oom_score_adj = true\n\
         disable_apparmor = true\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\n\
         bin_dir = \"/usr/lib/cni\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
         SystemdCgroup = true\n"
    )
}

fn bridge(network: &Network) -> serde_json::Value {
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": network.pods}]], "routes": [{"dst": "0.0.0.0/0"}],
        }},
        {"type": "loopback"},
    ]})
}
