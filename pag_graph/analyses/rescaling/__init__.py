"""What it brought, and what it cost, that workers joined or left a running computation (`docs/rescaling.md`)."""
