//===- TextTest.cpp - names of files on a terminal ------------------------===//
#include "support/ErrorText.h"
#include "support/Printable.h"
#include "support/ShellWord.h"
#include "support/Utf8.h"

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

/// What is written as JSON is text throughout.
TEST(Text, IsUtf8UpToItsEnd) {
  EXPECT_TRUE(isUtf8(""));
  EXPECT_TRUE(isUtf8("größe\n\x1b[1m"));
  EXPECT_FALSE(isUtf8("größe\xff"));
  EXPECT_FALSE(isUtf8("cut \xf0\x9f\x98"));
  EXPECT_EQ(firstCharacter("\xe9\x87\x8dみ").code, U'重');
  EXPECT_EQ(firstCharacter("\xe9\x87\x8dみ").bytes, 3U);
  EXPECT_EQ(firstCharacter("\xe0\x80\xaf").bytes, 0U); // a long way to say /
}

/// What is shown can be copied: bash and zsh read the same name from it.
TEST(Text, ShellWordsSpellControlCharacters) {
  EXPECT_EQ(shellWord("it's.npy"), "'it'\\''s.npy'");
  EXPECT_EQ(shellWord("a\x1b'\\b"), "$'a\\x1b\\'\\\\b'");
}

} // namespace pipec
