//===- UnknownName.cpp - what to say of a name that is none ---------------===//
#include "support/UnknownName.h"

#include "support/EditDistance.h"

namespace pipec {

/// Whether `name` is `word` with a letter more, goes on where it ends or ends
/// with it: ids, input_ids.
static bool isMore(const std::string &name, const std::string &word) {
  constexpr size_t kStart = 3; // letters that make a beginning
  const bool part =
      word.size() >= kStart && (name.starts_with(word) || name.ends_with(word));
  return part ||
         (name.size() == word.size() + 1 && editDistance(word, name) == 1);
}

static std::string inSmallLetters(std::string word) {
  for (char &letter : word)
    if (letter >= 'A' && letter <= 'Z')
      letter += 'a' - 'A';
  return word;
}

std::string nearestName(const std::string &typed,
                        const std::vector<std::string> &names) {
  const std::string word = inSmallLetters(typed);
  std::string best;
  for (const std::string &name : names)
    if (isMore(inSmallLetters(name), word) &&
        (best.empty() || name.size() < best.size()))
      best = name;
  if (!best.empty())
    return best;
  size_t least = word.size() / 3 + 1;
  for (const std::string &name : names)
    if (const size_t edits = editDistance(word, inSmallLetters(name));
        edits < least) {
      least = edits;
      best = name;
    }
  return best;
}

std::string didYouMean(const std::string &word,
                       const std::vector<std::string> &names) {
  const std::string best = nearestName(word, names);
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

std::string listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string unknownName(const std::string &what, const std::string &word,
                        const std::vector<std::string> &names) {
  return "no " + what + " '" + word + "'" + didYouMean(word, names) +
         "; there are: " + listed(names);
}

} // namespace pipec
