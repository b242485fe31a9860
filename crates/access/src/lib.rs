//! Who may do what: users, roles, tokens, sessions and the audit.
