//===- SharedPage.cpp - memory that processes of a machine share ----------===//
#include "runtime/transport/SharedPage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace pipec {

SharedPage::~SharedPage() {
  forget();
  if (start)
    ::munmap(start, size);
}

std::string SharedPage::make(size_t bytes) {
  file = ::memfd_create("pipec-page", MFD_CLOEXEC);
  if (file < 0)
    return "";
  // All of it now: a page that is missing later ends the process.
  if (::posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0)
    map(file, bytes);
  if (!start)
    forget();
  return file < 0 ? ""
                  : "/proc/" + std::to_string(::getpid()) + "/fd/" +
                        std::to_string(file);
}

void SharedPage::open(const std::string &name, size_t bytes) {
  if (name.empty())
    return;
  const int theirs = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (theirs < 0)
    return;
  map(theirs, bytes);
  ::close(theirs);
}

void SharedPage::map(int from, size_t bytes) {
  void *place =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
  if (place != MAP_FAILED)
    start = place, size = bytes;
}

void SharedPage::forget() {
  if (file >= 0)
    ::close(std::exchange(file, -1));
}

} // namespace pipec
