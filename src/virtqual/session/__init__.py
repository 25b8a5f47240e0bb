"""One session as data: its log, its runs, the earlier session, the judgement and the conclusion."""
