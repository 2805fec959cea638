"""Word lists that the task generator draws from. Changing them changes every generated example."""

WORDS = """
apple apron arrow badge bag ball banana band barn basket beach bean bear bed bee bell belt bench berry bike bird blanket
boat bone book boot bottle bowl box branch bread brick bridge broom brush bucket bus button cabin cable cake camel camera
candle canoe car card carpet carrot castle cat cave chain chair chalk cheese cherry chest clock cloud coat coffee coin
comb cookie corn couch cow crab crayon crow crown cup curtain daisy deer desk dish doctor dog doll donkey door dragon
dress drum duck eagle ear egg engine falcon farm feather fence field fig finger fire fish flag flame flower flute fly
forest fork fox frog fruit garden gate ghost giraffe glass glove goat goose grape grass guitar hammer hand harp hat hawk
heart hill honey hook horse house ice island ivy jacket jar jelly jewel juice kettle key king kite kitten knife ladder
lake lamp leaf lemon letter lily lime lion lizard lock log lunch magnet mango map maple marble mask melon milk mirror
monkey moon mouse mushroom nail needle nest net night nut oak ocean olive onion orange otter owl paint panda paper parrot
peach pear pen pencil penguin pepper piano pig pillow pilot pine pizza plane plant plate plum pond potato pumpkin puzzle
quail queen quilt rabbit radio rain raven rice ring river robot rocket roof root rope rose ruler sail salt sand scarf
school seed shark sheep shell ship shirt shoe shovel silver skirt snail snake snow soap sock soup spider spoon squirrel
star stone store storm sugar sun swan table tea tent thumb tiger toast tomato tower toy train tree truck tulip turtle
umbrella vase violin wagon wall walnut watch water whale wheat wheel window wing wolf wool yarn yogurt zebra
""".split()

NAMES = """
Anna Ben Clara Daniel Emma Felix Grace Henry Iris Jack Julia Kevin Laura Leo Lucy Maria Mark Mia Nina Noah Olga Oscar Paul
Peter Rosa Ruth Sam Sara Simon Sofia Thomas Tina Victor Wendy Yusuf Zoe Aisha Carlos Chen David Elena Fatima Hana Ivan
Jonas Kofi Lena Lin Marco Nadia Omar Priya Ravi Sven Tom Vera
""".split()

CITIES = """
Amsterdam Athens Berlin Boston Cairo Chicago Delhi Denver Dublin Geneva Hamburg Helsinki Istanbul Kyoto Lagos Lima Lisbon
London Madrid Milan Montreal Munich Nairobi Oslo Paris Prague Quito Rome Santiago Seoul Singapore Stockholm Sydney Tokyo
Toronto Vienna Warsaw Zurich
""".split()

JOBS = "baker carpenter chef dentist doctor driver engineer farmer gardener lawyer librarian nurse painter pilot plumber singer student teacher waiter writer".split()
COLORS = "black blue brown green grey orange pink purple red silver white yellow".split()
EVENTS = "birthday concert course dinner exam interview lecture lunch meeting party picnic play rehearsal tour training workshop".split()
ROOMS = "hall kitchen library office garden lobby studio gym".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
