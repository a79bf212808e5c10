// For unit tests.
#pragma once
#include "tools/cmake/headers/plain.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
