//===- TextTest.cpp - names of files on a terminal ------------------------===//
#include "support/ErrorText.h"
#include "support/ShellWord.h"

#include <gtest/gtest.h>

namespace pipec {

/// A name in a file may color the screen or begin a line of its own.
TEST(Text, ErrorsShowControlCharactersAsText) {
  EXPECT_EQ(errorText("pipec-run",
                      {Exit::Usage, "no input 'a\x1b[31m\nb\x7f'; give it"},
                      "p", false),
            "pipec-run: error: no input 'a\\x1b[31m\\x0ab\\x7f'; give it\n");
}

/// What is shown can be copied: bash and zsh read the same name from it.
TEST(Text, ShellWordsSpellControlCharacters) {
  EXPECT_EQ(shellWord("it's.npy"), "'it'\\''s.npy'");
  EXPECT_EQ(shellWord("a\x1b'\\b"), "$'a\\x1b\\'\\\\b'");
}

} // namespace pipec
