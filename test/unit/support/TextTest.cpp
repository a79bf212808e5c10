//===- TextTest.cpp - names of files on a terminal ------------------------===//
#include "support/ErrorText.h"
#include "support/Printable.h"
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

/// A file of another kind than was thought is shown up to its bytes, and names
/// in any language as they are.
TEST(Text, BytesThatAreNoTextAreNumbers) {
  EXPECT_EQ(printable("größe, 重み, \xf0\x9f\x98\x80"),
            "größe, 重み, \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\x93NUMPY"), "\\x93NUMPY");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J"); // clears some terminals
  EXPECT_EQ(printable("a\xe9\x87"), "a\\xe9\\x87");
  EXPECT_EQ(printable("\xc0\x80 \xed\xa0\x80 \xf8"),
            "\\xc0\\x80 \\xed\\xa0\\x80 \\xf8");
}

/// What is shown can be copied: bash and zsh read the same name from it.
TEST(Text, ShellWordsSpellControlCharacters) {
  EXPECT_EQ(shellWord("it's.npy"), "'it'\\''s.npy'");
  EXPECT_EQ(shellWord("a\x1b'\\b"), "$'a\\x1b\\'\\\\b'");
}

} // namespace pipec
