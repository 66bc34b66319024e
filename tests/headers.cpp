// A program that does nothing: the target whose precompiled headers all tests use.
int main() {}
