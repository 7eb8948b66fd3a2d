"""DingTalk: a bot on the stream connection, answering with AI cards or markdown."""
