# a1
# b1
# a2
# b2
# a3
# b3
