"""Getting data: downloads that resume, mirrors, safe archives, and checks of what arrived."""
