"""Why a program was slow, told by what only its own source knows."""
