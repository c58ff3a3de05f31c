//! vmdrain-agent.
