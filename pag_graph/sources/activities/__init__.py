"""Activities and messages that somebody wrote down (`docs/generic.md`): read, checked and made a trace."""
