//! A whole host: real systemd, containerd and kubelet, joined to a real control plane. Only guests and virt-handler are played.
//!
//! | file | answers |
//! |---|---|
//! | `plane.rs` | the control plane that hosts join, and the played node to which their VMs move |
//! | `network.rs` | how a host reaches the control plane |
//! | `image.rs` | what runs in the containers |
//! | `node.rs` | what lies on the disk of a host with a kubelet |
//! | `tree.rs` | when every service and every container of a host began and ended |
//! | `witness.rs` | which guests are on a host whose kubelet is a real one |
//! | `chronicle.rs` | what the API server has shown, and when |
//! | `stage.rs` | what a case begins with, and what it does and asks |

mod chronicle;
pub(crate) mod image;
pub(crate) mod network;
pub(crate) mod node;
mod objects;
pub(crate) mod plane;
pub(crate) mod stage;
mod tree;
mod witness;
