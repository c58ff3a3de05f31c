//! Thin types: of each kind of object only the fields that are used, everything optional,
//! and the step from there to the views of [`crate::drain::world`].

pub(crate) mod guard;
pub(crate) mod kubevirt;
pub(crate) mod machine;
pub(crate) mod meta;
pub(crate) mod migration;
pub(crate) mod node;
pub(crate) mod other;
pub(crate) mod pdb;
pub(crate) mod pod;
mod quantity;
pub(crate) mod room;
pub(crate) mod target;
pub(crate) mod vmi;
pub(crate) mod volume;

pub(crate) use guard::{Guarded, Thin};
