//! The binary; what it does is in `vmdrain_agent::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vmdrain_agent::cli::main()
}
